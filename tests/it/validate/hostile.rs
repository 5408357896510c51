//! Hostile inputs: huge, endless, cyclic, unreadable and misleading files.
//!
//! Each gives a finding within seconds, without a crash (the harness fails on one). The output
//! neither controls a terminal nor fills a disk.

use std::fs::File;
use std::time::{Duration, Instant};

use pkgtool_base::diagnostic::render::ReportFormat;
use serde_json::json;

use crate::support::run::{Found, Ran, pkgtool, validate};
use crate::support::tree::{MODEL, Tree, config};

/// Returns the only finding of a report.
#[track_caller]
fn only(ran: &Ran) -> Found {
    let mut findings = ran.findings();
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0)
}

/// Validates a tree and returns its only finding, which must have this code.
#[track_caller]
fn only_in(tree: &Tree, code: &str) -> Found {
    let found = only(&validate(tree.root(), ".").expect_code(1));
    assert_eq!(found.code, code, "{found:?}");
    found
}

/// Runs `check` and fails if it takes too long. The limit is generous, because tests run
/// unoptimized and in parallel.
fn soon<T>(check: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = check();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(30), "took {took:?}");
    result
}

fn sparse(tree: Tree, path: &str, size: u64) -> Tree {
    let tree = tree.file(path, "");
    let file = File::options()
        .write(true)
        .open(tree.path(path))
        .expect("a file");
    file.set_len(size).expect("a size");
    tree
}

#[test]
fn a_huge_config_is_not_read() {
    let tree = sparse(Tree::new(), "xnnpack/config.json", 100 * 1024 * 1024);
    let found = soon(|| only_in(&tree, "PKG039"));
    assert!(found.message.contains("104857600 bytes"), "{found:?}");
    let mut text = "[".repeat(100 * 1024 * 1024);
    text.truncate(100 * 1024 * 1024);
    let tree = Tree::new().file("xnnpack/config.json", text);
    soon(|| only_in(&tree, "PKG039"));
}

#[test]
fn a_huge_precision_list_is_not_read() {
    let tree = sparse(Tree::with_package(), "precisions.json", 100 * 1024 * 1024);
    soon(|| only_in(&tree, "PKG039"));
    let given = pkgtool(["validate", "--precisions", "precisions.json", "xnnpack"]);
    let ran = given.within(tree.root()).run().expect_code(2);
    assert!(ran.stderr.contains("104857600 bytes"), "{}", ran.stderr);
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let depth = 600_000;
        let text = format!("{}0{}", open.repeat(depth), close.repeat(depth));
        let tree = Tree::new().file("xnnpack/config.json", text);
        let found = soon(|| only_in(&tree, "PKG002"));
        assert!(found.message.contains("Too deeply nested"), "{found:?}");
        let tree = Tree::new().file("xnnpack/config.json", open.repeat(depth));
        soon(|| only_in(&tree, "PKG002"));
    }
}

#[test]
fn deep_nesting_in_a_tokenizer_is_refused() {
    let mut config = config();
    config["tokenizer"] = json!("tokenizer.json");
    let tree = Tree::new().package("xnnpack", &config);
    let tree = tree.file("xnnpack/tokenizer.json", "[".repeat(1_000_000));
    soon(|| only_in(&tree, "PKG022"));
}

#[test]
fn binary_rubbish_is_refused() {
    let bytes: Vec<u8> = (0..100_000_u32)
        .map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[1])
        .collect();
    only_in(&Tree::new().file("xnnpack/config.json", &bytes), "PKG002");
    only_in(
        &Tree::new().file("xnnpack/config.json", [0; 4096]),
        "PKG002",
    );
    let tree = Tree::with_package().file(&format!("xnnpack/{MODEL}"), &bytes);
    only_in(&tree, "PKG027");
}

#[test]
fn a_directory_named_config_json_is_a_finding() {
    let tree = Tree::new().file("xnnpack/config.json/x", "");
    only_in(&tree, "PKG039");
    let tree = Tree::with_package().file("docs/config.json/x", "");
    validate(tree.root(), ".").expect_code(0);
}

#[test]
fn references_to_directories_are_findings() {
    let mut config = config();
    config["tokenizer"] = json!("../xnnpack");
    only_in(&Tree::new().package("xnnpack", &config), "PKG039");
    let mut config = self::config();
    config["variants"][0]["file"] = json!("../xnnpack");
    let tree = Tree::new().json("xnnpack/config.json", &config);
    let codes = validate(tree.root(), ".").codes();
    assert!(
        !codes.is_empty() && codes.iter().all(|code| code != "PKG015"),
        "{codes:?}"
    );
}

#[test]
fn thousands_of_faults_are_cut_off() {
    let mut config = config();
    for i in 0..10_000 {
        config[format!("unknown{i}")] = json!(i);
    }
    let tree = Tree::new().package("xnnpack", &config);
    let ran = soon(|| validate(tree.root(), ".")).expect_code(1);
    let findings = ran.findings();
    assert_eq!(findings.len(), 1001);
    let limit: Vec<_> = findings
        .iter()
        .filter(|found| found.code == "PKG041")
        .collect();
    assert_eq!(limit.len(), 1);
    assert_eq!(limit[0].severity, "note");
    assert_eq!(
        limit[0].message,
        "at least 9000 more findings in this file were left out"
    );
}

fn with_tensors(tensor: &str, count: usize, method: &str) -> Tree {
    let tensors = vec![tensor; count].join(",");
    let text = serde_json::to_string(&config()).expect("JSON");
    let text = text.replace("\"forward\"", &format!("\"{method}\""));
    let text = text.replacen("\"inputs\":[", &format!("\"inputs\":[{tensors},"), 1);
    Tree::with_package().file("xnnpack/config.json", text)
}

#[test]
fn more_values_and_longer_keys_than_any_config_has_are_refused() {
    let found = soon(|| only_in(&with_tensors("{}", 1_000_000, "forward"), "PKG002"));
    assert!(found.message.contains("Too many values"), "{found:?}");
    // Each finding would contain the name in its path.
    let found = only_in(&with_tensors("{}", 3, &"n".repeat(1_000_000)), "PKG002");
    assert!(found.message.contains("Too long a key"), "{found:?}");
}

#[test]
fn as_many_faults_as_can_be_take_little_time_and_room() {
    // Each tensor lacks two keys and has an unknown one.
    let tree = with_tensors("{\"a\":0}", 20_000, &"n".repeat(256));
    for format in ReportFormat::ALL.map(ReportFormat::name) {
        let arguments = ["validate", "--format", format];
        let ran = soon(|| pkgtool(arguments).within(tree.root()).run()).expect_code(1);
        assert!(
            ran.stdout.len() < 4_000_000,
            "{format}: {}",
            ran.stdout.len()
        );
    }
}

#[test]
fn long_lines_and_values_are_shown_in_part() {
    let long = "x".repeat(900_000);
    let mut config = config();
    config["license"] = json!(long);
    config["tokenizer"] = json!(long);
    config["backend"] = json!(long);
    config["variants"][0]["precision"] = json!(long.to_uppercase());
    let text = serde_json::to_string(&config).expect("JSON");
    let tree = Tree::with_package().file("xnnpack/config.json", text);
    for format in ReportFormat::ALL.map(ReportFormat::name) {
        let arguments = ["validate", "--format", format];
        let ran = soon(|| pkgtool(arguments).within(tree.root()).run()).expect_code(1);
        assert!(ran.stdout.len() < 200_000, "{format}: {}", ran.stdout.len());
    }
}

#[test]
fn files_cannot_steer_the_terminal() {
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{0}\r";
    let mut config = config();
    config[evil] = json!(evil);
    config["license"] = json!(evil);
    config["tokenizer"] = json!(evil);
    config["variants"][0]["methods"][evil] = json!({ "inputs": [], "outputs": [] });
    let tree = Tree::new().package("xnnpack", &config);
    // The same characters unescaped: the report also quotes text that does not parse.
    let tree = tree.file("coreml/config.json", "{ \"a\u{1b}[31m\u{9b}\u{202e}\": }");
    let arguments = ["validate", "--color", "never"];
    let ran = pkgtool(arguments).within(tree.root()).run().expect_code(1);
    for forbidden in ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\0', '\r'] {
        assert!(
            !ran.stdout.contains(forbidden),
            "{forbidden:?} in {}",
            ran.stdout
        );
    }
    let github = pkgtool(["validate", "--format", "github"])
        .within(tree.root())
        .run();
    assert_eq!(
        github
            .stdout
            .lines()
            .filter(|line| line.starts_with("::"))
            .count(),
        github
            .stdout
            .split(['\n', '\r'])
            .filter(|line| !line.is_empty())
            .count(),
        "a file added a line to the output: {}",
        github.stdout
    );
}

#[test]
fn many_paths_to_one_file_are_one_file() {
    let tree = Tree::with_package();
    let paths = vec!["xnnpack/config.json"; 500];
    let ran = pkgtool(["validate", "--format", "json"].into_iter().chain(paths));
    let ran = ran.within(tree.root()).run().expect_code(0);
    assert_eq!(ran.json()["summary"]["packages"], 1);
}

#[test]
fn paths_that_are_not_there_are_named() {
    for path in ["/nonexistent", "/dev/null/config.json"] {
        let ran = pkgtool(["validate", path]).run().expect_code(2);
        assert!(ran.stderr.contains(path), "{}", ran.stderr);
    }
}
