//! Tests of `pkgtool validate`: exit codes and options.

use std::fs;

use serde_json::{Value, json};

use crate::support::fixture;
use crate::support::run::{Ran, pkgtool, validate};
use crate::support::tree::{MODEL, Tree, config};

/// A minimal root config.json, as publishers add for the hub's download counter.
const STUB: &str = "{ \"architectures\": [\"tiny\"] }";

fn run(tree: &Tree, arguments: &[&str]) -> Ran {
    pkgtool(["validate"].iter().chain(arguments))
        .within(tree.root())
        .run()
}

fn with_warning() -> Tree {
    Tree::new().package("models", &config())
}

fn with_error() -> Tree {
    let mut config = config();
    config["license"] = json!("");
    Tree::new().package("xnnpack", &config)
}

#[test]
fn exit_codes_tell_clean_from_findings() {
    let clean = Tree::with_package();
    let ran = run(&clean, &[]).expect_code(0);
    assert_eq!(ran.stdout, "1 package checked, all clean\n");
    assert_eq!(ran.stderr, "");
    run(
        &clean,
        &["--deny-warnings", "xnnpack", "xnnpack/config.json"],
    )
    .expect_code(0);

    run(&with_error(), &[]).expect_code(1);
    run(&with_error(), &["--exit-zero"]).expect_code(0);
    run(&with_error(), &["--quiet"]).expect_code(1);

    run(&with_warning(), &[]).expect_code(0);
    run(&with_warning(), &["--deny-warnings"]).expect_code(1);
    run(&with_warning(), &["--deny-warnings", "--exit-zero"]).expect_code(0);

    let mut note = config();
    note["license"] = json!("see README");
    let note = Tree::new().package("xnnpack", &note);
    run(&note, &["--deny-warnings"]).expect_code(0);
}

#[test]
fn wrong_usage_is_told_from_findings() {
    let tree = Tree::with_package();
    for arguments in [
        &["--no-such-option"][..],
        &["--format", "yaml"],
        &["--jobs", "many"],
        &["--quiet", "--verbose"],
        &["--report", "sarif"],
        &["--report", "yaml=x"],
        &["--report", "json="],
        &["missing"],
        &["xnnpack", "missing/config.json"],
        &["--precisions", "missing.json"],
        &["--precisions", "xnnpack/config.json"],
        &["--report", "json=no/such/directory/report.json"],
    ] {
        let ran = run(&tree, arguments).expect_code(2);
        assert_eq!(ran.stdout, "", "{arguments:?}");
        assert!(
            ran.stderr.starts_with("error: "),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
    pkgtool(["no-such-command"]).run().expect_code(2);
    pkgtool::<&str>([]).run().expect_code(2);
}

#[test]
fn nothing_to_check_has_its_own_exit_code() {
    let ran = run(&Tree::new(), &[]).expect_code(3);
    assert_eq!(ran.stdout, "");
    assert!(
        ran.stderr.starts_with("error: nothing to check in .: "),
        "{}",
        ran.stderr
    );
    let ran = run(&Tree::new(), &["--format", "json"]).expect_code(3);
    assert_eq!(ran.json()["diagnostics"], json!([]));
    let ran = run(&Tree::new(), &["--exit-zero"]).expect_code(3);
    assert!(!ran.stderr.is_empty());
    let ran = run(&Tree::new(), &["--quiet"]).expect_code(3);
    assert_eq!(ran.stderr, "");
    let stub = Tree::new().file("config.json", STUB);
    let ran = run(&stub, &[]).expect_code(3);
    assert!(ran.stderr.contains("-v shows the reason"), "{}", ran.stderr);
}

#[test]
fn a_stub_at_the_root_is_passed_over_unless_named() {
    for stub in [STUB, "", "not JSON"] {
        let tree = Tree::with_package().file("config.json", stub);
        let ran = run(&tree, &[]).expect_code(0);
        assert_eq!(ran.stderr, "");
        let ran = run(&tree, &["-v"]).expect_code(0);
        assert!(
            ran.stderr.starts_with("note: config.json skipped: "),
            "{}",
            ran.stderr
        );
        let ran = run(&tree, &["--format", "json", "config.json"]).expect_code(1);
        assert!(
            ran.findings()
                .iter()
                .all(|found| found.path == "config.json")
        );
        // A path given explicitly is checked, even if a directory walk would skip it.
        run(&tree, &[".", "config.json"]).expect_code(1);
    }
}

#[test]
fn configs_elsewhere_count_if_they_look_like_one() {
    let tree = Tree::new().package("models", &config());
    assert_eq!(validate(tree.root(), ".").codes(), ["PKG024"]);
    let broken = Tree::new().file("models/config.json", "{ \"backend\": 1, \"variants\": [ }");
    assert_eq!(validate(broken.root(), ".").codes(), ["PKG002"]);
    let hidden = Tree::new()
        .package(".cache/xnnpack", &config())
        .package("node_modules/xnnpack", &config());
    run(&hidden, &[]).expect_code(3);
    run(&hidden, &[".cache"]).expect_code(0);
}

#[test]
fn a_path_given_twice_counts_once() {
    let tree = with_error();
    let ran = run(
        &tree,
        &[
            "--format",
            "json",
            ".",
            "xnnpack",
            "./xnnpack/config.json",
            "xnnpack/../xnnpack",
        ],
    );
    let report = ran.expect_code(1).json();
    assert_eq!(
        report["summary"],
        json!({ "packages": 1, "errors": 1, "warnings": 0, "notes": 0 })
    );
}

#[test]
fn models_stay_closed_on_request() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 2576\n";
    let mut config = config();
    config["variants"][0]["size_bytes"] = json!(2576);
    let tree = Tree::new()
        .package("xnnpack", &config)
        .file(&format!("xnnpack/{MODEL}"), pointer);
    assert_eq!(validate(tree.root(), ".").codes(), ["PKG018"]);
    run(&tree, &["--no-model"]).expect_code(0);
    config["variants"][0]["size_bytes"] = json!(2577);
    let tree = tree.json("xnnpack/config.json", &config);
    let ran = run(&tree, &["--no-model", "--format", "json"]).expect_code(1);
    assert_eq!(
        ran.codes(),
        ["PKG019"],
        "a pointer contains the size of its file"
    );
    let broken = Tree::with_package().file(&format!("xnnpack/{MODEL}"), "rubbish");
    run(&broken, &[]).expect_code(1);
    run(&broken, &["--no-model"]).expect_code(0);
}

fn q5() -> Value {
    let mut config = config();
    config["variants"][0]["precision"] = json!("q5");
    config["variants"][0]["file"] = json!("tiny_xnnpack_q5.pte");
    config
}

#[test]
fn a_list_of_ones_own_replaces_the_built_in_one() {
    let list = json!({ "quantized": ["q5"], "non_quantized": ["f32"] });
    let model = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    let tree = Tree::new()
        .json("xnnpack/config.json", &q5())
        .file("xnnpack/tiny_xnnpack_q5.pte", model);
    assert_eq!(validate(tree.root(), ".").codes(), ["PKG008"]);
    let tree = tree.json("lists/mine.json", &list);
    run(&tree, &["--precisions", "lists/mine.json"]).expect_code(0);
    let other = Tree::with_package().json("lists/mine.json", &list);
    let ran = run(
        &other,
        &["--precisions", "lists/mine.json", "--format", "json"],
    )
    .expect_code(1);
    assert_eq!(ran.codes(), ["PKG008"], "fp32 is not in it");
    let tree = tree.json("precisions.json", &list);
    run(&tree, &[]).expect_code(0);
}

#[test]
fn lists_are_checked_themselves() {
    let overlap = json!({ "quantized": ["int8", "fp32"], "non_quantized": ["fp32"] });
    let tree = Tree::with_package().json("precisions.json", &overlap);
    assert_eq!(validate(tree.root(), ".").codes(), ["PKG006"]);
    assert_eq!(validate(tree.root(), "precisions.json").codes(), ["PKG006"]);
    let tree = Tree::with_package().json("mine.json", &overlap);
    let ran = run(&tree, &["--precisions", "mine.json", "--format", "json"]).expect_code(1);
    assert_eq!(ran.codes(), ["PKG006"]);
    assert_eq!(
        validate(tree.root(), "mine.json").codes(),
        ["PKG006"],
        "detected by its content"
    );
}

#[test]
fn several_reports_are_written_at_once() {
    let tree = with_error();
    let arguments = [
        "--quiet",
        "--report",
        "json=r.json",
        "--report",
        "sarif=r.sarif",
        "--report",
        "junit=r.xml",
    ];
    let human = run(&tree, &arguments).expect_code(1);
    assert!(human.stdout.contains("PKG004"));
    let read = |name: &str| fs::read_to_string(tree.path(name)).expect("a report");
    let json = run(&tree, &["--format", "json"]).stdout;
    assert_eq!(read("r.json"), json);
    assert_eq!(read("r.sarif"), run(&tree, &["--format", "sarif"]).stdout);
    assert_eq!(read("r.xml"), run(&tree, &["--format", "junit"]).stdout);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let reports: Vec<_> = ["1", "2", "7", "0"]
        .map(|jobs| ["validate", "--format", "json", "--jobs", jobs, "rules"])
        .map(|arguments| {
            pkgtool(arguments)
                .within(fixture(""))
                .run()
                .expect_code(1)
                .stdout
        })
        .into();
    assert!(reports.iter().all(|report| *report == reports[0]));
}

#[test]
fn quiet_says_findings_only() {
    let ran = run(&with_error(), &["--quiet"]).expect_code(1);
    assert!(!ran.stdout.contains("checked"), "{}", ran.stdout);
    assert_eq!(run(&Tree::with_package(), &["--quiet"]).stdout, "");
}

#[test]
fn the_package_root_is_a_border() {
    let mut config = config();
    config["tokenizer"] = json!("../../../tokenizer.json");
    let tree = Tree::new()
        .file("tokenizer.json", "{}")
        .package("repo/s/xnnpack", &config);
    // The result does not depend on how the path is written.
    for path in [
        ".",
        "repo",
        "repo/s",
        "repo/s/xnnpack",
        "repo/s/xnnpack/config.json",
    ] {
        assert_eq!(validate(tree.root(), path).codes(), ["PKG016"], "{path}");
    }
    let within = validate(&tree.path("repo/s/xnnpack"), ".");
    assert_eq!(within.codes(), ["PKG016"]);
    let tree = tree.file("repo/.git/HEAD", "");
    assert_eq!(validate(tree.root(), ".").codes(), ["PKG016"]);
}

#[test]
fn a_shared_file_is_inside_however_the_package_is_named() {
    let mut config = config();
    config["tokenizer"] = json!("../tokenizer.json");
    let deep = |tree: Tree, mark: &str, content: &str| {
        let mut config = config.clone();
        config["tokenizer"] = json!("../../../tokenizer.json");
        let tree = tree
            .file("hub/tokenizer.json", "{}")
            .package("hub/a/b/xnnpack", &config);
        tree.file(mark, content)
    };
    let tree = Tree::new()
        .file("repo/tokenizer.json", "{}")
        .package("repo/xnnpack", &config);
    for path in ["repo", "repo/xnnpack", "repo/xnnpack/config.json"] {
        assert_eq!(
            validate(tree.root(), path).codes(),
            Vec::<String>::new(),
            "{path}"
        );
    }
    for (directory, path) in [
        ("repo/xnnpack", "."),
        ("repo/xnnpack", "config.json"),
        ("repo", "."),
    ] {
        let ran = validate(&tree.path(directory), path);
        assert_eq!(ran.codes(), Vec::<String>::new(), "{path} in {directory}");
    }
    // A download from a hub lacks `.git`, but other files mark its root.
    for (mark, content) in [
        ("hub/.gitattributes", ""),
        ("hub/.cache/huggingface/download/x", ""),
    ] {
        let tree = deep(Tree::new(), mark, content);
        for path in ["hub", "hub/a/b/xnnpack", "hub/a/b/xnnpack/config.json"] {
            assert_eq!(
                validate(tree.root(), path).codes(),
                Vec::<String>::new(),
                "{mark}: {path}"
            );
        }
    }
    let snapshot = Tree::new()
        .file("models--x/snapshots/abc/tokenizer.json", "{}")
        .package("models--x/snapshots/abc/xnnpack", &config);
    let ran = validate(&snapshot.path("models--x/snapshots/abc/xnnpack"), ".");
    assert_eq!(ran.codes(), Vec::<String>::new());
}

#[test]
fn a_package_brings_its_own_precision_list() {
    let list = json!({ "quantized": ["q5"], "non_quantized": ["fp32"] });
    let model = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    let tree = Tree::new()
        .json("all/one/1b/xnnpack/config.json", &q5())
        .file("all/one/1b/xnnpack/tiny_xnnpack_q5.pte", model)
        .json("all/one/precisions.json", &list);
    for path in [
        "all",
        "all/one",
        "all/one/1b",
        "all/one/1b/xnnpack",
        "all/one/1b/xnnpack/config.json",
    ] {
        assert_eq!(
            validate(tree.root(), path).codes(),
            Vec::<String>::new(),
            "{path}"
        );
    }
    // The nearest list applies: a collection's list does not replace a package's own.
    let other = json!({ "quantized": ["int8"], "non_quantized": ["f32"] });
    let tree = tree.json("all/precisions.json", &other);
    assert_eq!(validate(tree.root(), "all").codes(), Vec::<String>::new());
}

#[test]
fn a_model_that_is_named_leads_to_its_config() {
    let tree = Tree::with_package().file("elsewhere/m.onnx", "x");
    let ran = run(&tree, &[&format!("xnnpack/{MODEL}")]).expect_code(2);
    assert!(
        ran.stderr.contains("pkgtool validate xnnpack/config.json"),
        "{}",
        ran.stderr
    );
    let ran = run(&tree, &["elsewhere/m.onnx"]).expect_code(2);
    assert!(ran.stderr.contains("pkgtool inspect"), "{}", ran.stderr);
}

#[test]
fn everything_that_was_passed_over_is_told() {
    let tree = Tree::with_package()
        .file("config.json", STUB)
        .file(".hidden/xnnpack/config.json", "{}")
        .file("node_modules/a/config.json", "{}")
        .file("docs/config.json/x", "")
        .file(".git/HEAD", "");
    #[cfg(unix)]
    std::os::unix::fs::symlink("xnnpack", tree.path("linked")).expect("a link");
    let ran = run(&tree, &["-v"]).expect_code(0);
    let told: Vec<&str> = ran
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("note: "))
        .collect();
    let names: Vec<&str> = told
        .iter()
        .filter_map(|line| line.split(" skipped: ").next())
        .collect();
    let mut expected = vec![".hidden", "config.json", "docs/config.json", "node_modules"];
    if cfg!(unix) {
        expected.insert(3, "linked");
    }
    assert_eq!(names, expected, "{}", ran.stderr);
    assert_eq!(run(&tree, &[]).expect_code(0).stderr, "");
}

#[test]
fn another_librarys_config_is_one_note() {
    let foreign =
        r#"{ "model_type": "llama", "vocab_size": 32000, "quantization": { "bits": 4 } }"#;
    let tree = Tree::with_package().file("mlx/config.json", foreign);
    let ran = validate(tree.root(), ".").expect_code(0);
    assert_eq!(ran.codes(), ["PKG042"]);
    assert_eq!(ran.json()["summary"]["packages"], 1);
    run(&tree, &["mlx"]).expect_code(0);
    // A foreign config is checked if it is named explicitly, and a package's own config is always
    // checked, however broken.
    run(&tree, &["mlx/config.json"]).expect_code(1);
    for own in [
        r#"{ "model": "tiny" }"#,
        r#"{ "varints": [] }"#,
        "{}",
        r#"{ "backend": "mlx" }"#,
    ] {
        let tree = Tree::new().file("mlx/config.json", own);
        let codes = validate(tree.root(), ".").codes();
        let strict = codes.iter().all(|code| code == "PKG004");
        assert!(strict && !codes.is_empty(), "{own}: {codes:?}");
    }
}
