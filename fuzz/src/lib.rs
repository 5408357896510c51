//! What the fuzz targets check.

use std::cell::Cell;
use std::io;
use std::path::Path;

use pkgtool::diagnostic::render::{Format, Style};
use pkgtool::model::FORMATS;
use pkgtool::source::ReadAt;
use pkgtool::validate::{Options, rule_metas, validate_bytes};

/// Validates bytes as a file of this name: places lie inside the text, the report is bounded, all
/// renderings succeed.
pub fn check_validation(file_name: &str, bytes: &[u8]) {
    // No directory of this name: references lead nowhere, and nothing is opened.
    let path = Path::new("/nonexistent/package/xnnpack").join(file_name);
    let options = Options {
        paths: Vec::new(),
        precisions: None,
        open_models: false,
        jobs: 1,
    };
    let outcome = validate_bytes(&path, bytes.to_vec(), &options).expect("a report");
    assert!(outcome.report.diagnostics.len() <= 1001);
    for diagnostic in &outcome.report.diagnostics {
        let span = diagnostic.span;
        assert!(span.start <= span.end && span.end <= diagnostic.source.text.len());
        assert_eq!(
            diagnostic.start().offset,
            span.start,
            "a character's border"
        );
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
}

/// Reads bytes as a model of this format: an answer or an error, after a bounded number of bytes.
pub fn check_reader(name: &str, bytes: &[u8]) {
    let format = FORMATS.iter().find(|format| format.name() == name);
    let format = format.expect("a format");
    let source = Counted {
        bytes,
        read: Cell::new(0),
    };
    if let Ok(info) = format.inspect(&source) {
        for method in &info.methods {
            let _ = method.to_string();
        }
    }
    let allowed = 64 * 1024 + 32 * bytes.len() as u64;
    assert!(
        source.read.get() <= allowed,
        "read {} bytes",
        source.read.get()
    );
}

/// Bytes that count how many of them were asked for.
struct Counted<'a> {
    bytes: &'a [u8],
    read: Cell<u64>,
}

impl ReadAt for Counted<'_> {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read.set(self.read.get() + buffer.len() as u64);
        self.bytes.read_exact_at(offset, buffer)
    }
}
