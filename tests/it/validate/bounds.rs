//! Configs of the maximum allowed size whose shape once caused quadratic work.
//!
//! Validation must return a bounded report quickly. The time limit is generous for busy machines,
//! but quadratic work, which takes minutes, exceeds it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pkgtool_check::validate::{ValidationOptions, validate_bytes};

const SOON: Duration = Duration::from_mins(1);
const MANY: usize = 30_000;

fn list(item: impl Fn(usize) -> String) -> String {
    list_of(MANY, item)
}

fn list_of(count: usize, item: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for i in 0..count {
        let _ = write!(text, "{}{}", if i == 0 { "" } else { "," }, item(i));
    }
    text
}

/// Asserts that a config with these members gives a bounded report quickly.
fn check(members: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/xnnpack");
    let text = format!("{{\"model\": \"m\", \"backend\": \"xnnpack\", {members}}}");
    let options = ValidationOptions {
        paths: Vec::new(),
        precisions: None,
        open_models: true,
        jobs: 1,
    };
    let start = Instant::now();
    let outcome = validate_bytes(&path.join("config.json"), text.into_bytes(), &options);
    let report = outcome.expect("a report").report;
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert!(
        report.diagnostics.len() <= 1001,
        "{}",
        report.diagnostics.len()
    );
    let lengths = report.diagnostics.iter().map(|d| {
        let help = d.help.as_ref().map_or(0, String::len);
        d.message.len() + help + d.pointer.len()
    });
    assert!(lengths.sum::<usize>() < 40 * 1024 * 1024);
}

fn check_variants(item: impl Fn(usize) -> String) {
    check(&format!("\"variants\": [{}]", list(item)));
}

#[test]
fn many_variants() {
    check_variants(|_| "{}".to_owned());
    check_variants(|_| {
        r#"{"precision": "fp32", "file": "../add_linear_xnnpack_fp32.pte", "size_bytes": 1}"#
            .to_owned()
    });
    check_variants(|i| format!(r#"{{"precison": "p{i}", "file": "/a", "x": 1}}"#));
    check_variants(|_| {
        r#"{"file": "a", "methods": {"a": {"f": {"inputs": 1}}, "b": {"inputs": 1}}}"#.to_owned()
    });
}

#[test]
fn many_members() {
    check(&list(|i| format!("\"k{i}\": 1")));
    check(&list(|_| "\"k\": 1".to_owned()));
    check(&list(|i| format!("\"TODO_{i}\": \"TODO\"")));
    check(&format!(
        "\"capabilities\": [{}]",
        list(|i| format!("\"v{i}\""))
    ));
}

#[test]
fn many_components_and_methods() {
    // Many rules check each of these items, so fewer items keep a debug build fast enough.
    let few = |item: fn(usize) -> String| list_of(MANY / 4, item);
    let components = few(|i| format!("\"c{i}\": \"../onnx/mlp.onnx\""));
    let methods = few(|i| format!("\"d{i}\": {{}}"));
    check(&format!(
        "\"variants\": [{{\"precision\": \"fp32\", \"components\": {{{components}}}, \"methods\": {{{methods}}}}}]"
    ));
    let methods = few(|i| format!("\"m{i}\": {{\"inputs\": [], \"outputs\": []}}"));
    check(&format!(
        "\"variants\": [{{\"file\": \"../multi_method_xnnpack_fp32.pte\", \"methods\": {{{methods}}}}}]"
    ));
}

#[test]
fn many_dimensions() {
    let shape = list(|_| "-2".to_owned());
    check(&format!(
        r#""variants": [{{"file": "../onnx/mlp.onnx", "methods": {{"f": {{"inputs": [{{"shape": [{shape}]}}], "outputs": []}}}}}}]"#
    ));
}

#[test]
fn long_keys_on_a_deep_path() {
    let key = "k".repeat(20_000);
    let open = format!("{{\"{key}\": ").repeat(100);
    let repeated = list(|_| "\"a\": 1".to_owned());
    check(&format!("\"z\": {open}{{{repeated}}}{}", "}".repeat(100)));
}

#[test]
fn long_words() {
    let long = "a".repeat(1_000_000);
    check(&format!(
        r#""{long}": 1, "license": "{long}", "capabilities": ["{long}"], "variants": [{{"precision": "{long}", "file": "{long}"}}]"#
    ));
}
