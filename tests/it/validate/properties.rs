//! Property tests of validation on arbitrary bytes: no panic, correct positions, a stable order,
//! five report formats.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pkgtool_base::diagnostic::render::{ReportFormat, ReportStyle};
use pkgtool_base::diagnostic::{Diagnostic, Report, SourceText};
use pkgtool_base::source::Span;
use pkgtool_check::validate::{ValidationOptions, rule_metas, validate, validate_bytes};
use proptest::prelude::*;
use serde_json::Value;

use pkgtool_testing::mutate::{JsonPart, changes};

const SEEDS: [&str; 3] = [
    r#"{"$schema": "https://pkgtool.dev/schemas/config.schema.json", "model": "add_linear",
        "family": "toy", "capabilities": ["classification"], "backend": "xnnpack", "license": "MIT",
        "variants": [{"precision": "fp32", "file": "../add_linear_xnnpack_fp32.pte", "size_bytes": 2000,
          "methods": {"forward": {"inputs": [{"shape": [2, 2], "dtype": "float32"}],
            "outputs": [{"name": "y", "shape": [-1, 2], "dtype": "float32"}]}}}]}"#,
    r#"{"$schema": "https://pkgtool.dev/schemas/config.schema.json", "model": "m", "family": "m",
        "size": "0_6b", "capabilities": ["text-generation"], "backend": "coreml", "license": "see README",
        "tokenizer": "../expect.json", "variants": [{"precision": "8w4da", "file": null,
          "components": {"encoder": "../onnx/mlp.onnx", "decoder": "../multi_method_xnnpack_fp32.pte",
            "tokenizer": "../expect.json"},
          "methods": {"encoder": {"forward": {"inputs": [], "outputs": []}}, "decodr": {}}}]}"#,
    r#"{"quantized": ["int8", "4w"], "non_quantized": ["fp32", "int8"]}"#,
];

/// A path beside the model fixtures; the file does not exist.
fn config_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/xnnpack/config.json")
}

fn options(paths: Vec<PathBuf>) -> ValidationOptions {
    ValidationOptions {
        paths,
        precisions: None,
        open_models: true,
        jobs: 1,
    }
}

fn report(bytes: &[u8]) -> Report {
    let outcome = validate_bytes(&config_path(), bytes.to_vec(), &options(Vec::new()));
    outcome.expect("a report").report
}

fn rendered(report: &Report, format: ReportFormat) -> String {
    let rules = rule_metas();
    let style = ReportStyle {
        color: true,
        rules: &rules,
        ..ReportStyle::default()
    };
    let mut out = Vec::new();
    let result = format.render(report, &style, &mut out);
    result.unwrap_or_else(|error| panic!("{}: {error}", format.name()));
    String::from_utf8(out).expect("UTF-8")
}

/// Checks the guarantees of every report.
fn sound(report: &Report) -> Result<(), TestCaseError> {
    for diagnostic in &report.diagnostics {
        let (span, text) = (diagnostic.span, &diagnostic.source.text);
        prop_assert!(
            span.start <= span.end && span.end <= text.len(),
            "{diagnostic:?}"
        );
        for (position, offset) in [
            (diagnostic.start(), span.start),
            (diagnostic.end(), span.end),
        ] {
            prop_assert_eq!(
                position.offset,
                offset,
                "inside a character: {:?}",
                diagnostic
            );
            let before = &text[..offset];
            let line = before.rsplit('\n').next().unwrap_or_default();
            prop_assert_eq!(position.line, before.matches('\n').count() + 1);
            prop_assert_eq!(position.column, line.chars().count() + 1);
        }
        // A repeated key may be inside a value that a later key overrides.
        if diagnostic.rule.code != "PKG003" && !diagnostic.pointer.is_empty() {
            let value: Value = serde_json::from_str(text).expect("only JSON has pointers");
            prop_assert!(
                value.pointer(&diagnostic.pointer).is_some(),
                "{diagnostic:?}"
            );
        }
    }
    for format in ReportFormat::ALL {
        let text = rendered(report, format);
        if matches!(format, ReportFormat::Json | ReportFormat::Sarif) {
            serde_json::from_str::<Value>(&text).expect("JSON");
        }
        if format == ReportFormat::Human {
            let lone = text.replace("\u{1b}[", "");
            let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
            prop_assert!(!lone.contains(steers), "{lone:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn changed_configs(
        seed in prop::sample::select(&SEEDS[..]),
        changes in changes(),
    ) {
        let mut tree = JsonPart::parse(seed);
        for (at, change) in &changes {
            tree.apply(*at, change);
        }
        let text = tree.text();
        let first = report(text.as_bytes());
        sound(&first)?;
        let second = report(text.as_bytes());
        prop_assert_eq!(rendered(&first, ReportFormat::Json), rendered(&second, ReportFormat::Json));
    }

    #[test]
    fn changed_bytes(
        seed in prop::sample::select(&SEEDS[..]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
    ) {
        let mut bytes = seed.as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        sound(&report(&bytes))?;
    }

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        sound(&report(&bytes))?;
    }

    #[test]
    fn precisions_are_suggested_for_any_word(word in any::<String>(), known in any::<String>()) {
        let mut config = JsonPart::parse(SEEDS[0]).text();
        config = config.replace("\"fp32\"", &Value::from(word.as_str()).to_string());
        sound(&report(config.as_bytes()))?;
        let list = format!("{{\"quantized\": [{}]}}", Value::from(known));
        sound(&report(list.as_bytes()))?;
    }

    #[test]
    fn any_span_can_be_shown(
        text in "[a\n\r\t\u{1b}é😀\u{202e}]{0,60}", long in 0..200_usize,
        start in any::<prop::sample::Index>(), length in 0..400_usize,
    ) {
        let text = format!("{text}{}", "é😀a\u{301}".repeat(long));
        let start = start.index(text.len() + 3);
        let source = Arc::new(SourceText::new("c\u{1b}.json".to_owned(), text));
        let diagnostic = Diagnostic {
            rule: rule_metas()[0],
            severity: rule_metas()[0].severity,
            message: "a message".to_owned(),
            help: None,
            source: Arc::clone(&source),
            pointer: String::new(),
            span: Span::new(start, start + length),
            subject: None,
            fix: None,
        };
        let report = Report {
            files: vec![source.path.clone()],
            lists: 0,
            packages: 1,
            diagnostics: vec![diagnostic],
            ..Report::default()
        };
        for format in ReportFormat::ALL {
            let text = rendered(&report, format);
            prop_assert!(format != ReportFormat::Human || !text.replace("\u{1b}[", "").contains('\u{1b}'), "{text:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn packages_of_arbitrary_bytes(
        config in prop_oneof![prop::sample::select(&SEEDS[..2]).prop_map(|s| s.as_bytes().to_vec()), prop::collection::vec(any::<u8>(), 0..60)],
        list in prop::option::of(prop_oneof![Just(SEEDS[2].as_bytes().to_vec()), prop::collection::vec(any::<u8>(), 0..60)]),
        tokenizer in prop::collection::vec(any::<u8>(), 0..60),
        model in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            prop::collection::vec(any::<u8>(), 0..200).prop_map(|tail| [b"\x20\0\0\0ET12".to_vec(), tail].concat()),
        ],
    ) {
        let package = tempfile::tempdir().expect("a directory");
        let directory = package.path().join("xnnpack");
        std::fs::create_dir(&directory).expect("a directory");
        let put = |path: &str, bytes: &[u8]| std::fs::write(package.path().join(path), bytes).expect("the file is written");
        put("xnnpack/config.json", &config);
        put("expect.json", &tokenizer);
        put("add_linear_xnnpack_fp32.pte", &model);
        if let Some(list) = &list {
            put("precisions.json", list);
        }
        let outcome = validate(&options(vec![package.path().to_owned()]), &|_, _| {});
        let report = outcome.expect("a report").report;
        prop_assert_eq!(report.packages, 1);
        sound(&report)?;
    }
}

#[test]
fn a_placeholder_hidden_by_a_repeated_key_is_not_pointed_at_in_the_value_that_counts() {
    let report = report(br#"{"license": "TODO_license", "license": "MIT", "variants": []}"#);
    let codes: Vec<&str> = report.diagnostics.iter().map(|d| d.rule.code).collect();
    assert!(codes.contains(&"PKG003"), "{codes:?}");
    assert!(!codes.contains(&"PKG010"), "{codes:?}");
}
