//! Precision lists of any bytes: places inside the text, a bounded report, all renderings.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use pkgtool::diagnostic::render::{Format, Style};
use pkgtool::validate::{Options, rule_metas, validate_bytes};

fuzz_target!(|bytes: &[u8]| {
    // No directory of this name: references lead nowhere, and nothing is opened.
    let path = Path::new("/nonexistent/package/xnnpack/precisions.json");
    let options = Options {
        paths: Vec::new(),
        precisions: None,
        open_models: false,
        jobs: 1,
    };
    let outcome = validate_bytes(path, bytes.to_vec(), &options).expect("a report");
    assert!(outcome.report.diagnostics.len() <= 1001);
    for diagnostic in &outcome.report.diagnostics {
        let span = diagnostic.span;
        assert!(span.start <= span.end && span.end <= diagnostic.source.text.len());
        assert_eq!(diagnostic.start().offset, span.start, "a character's border");
        assert_eq!(diagnostic.end().offset, span.end, "a character's border");
    }
    let rules = rule_metas();
    let style = Style {
        color: false,
        width: 80,
        summary: true,
        deny_warnings: false,
        rules: &rules,
    };
    for format in Format::ALL {
        let mut out = Vec::new();
        let rendered = format.render(&outcome.report, &style, &mut out);
        rendered.expect("rendered");
        if matches!(format, Format::Json | Format::Sarif) {
            serde_json::from_slice::<serde_json::Value>(&out).expect("JSON");
        }
    }
});
