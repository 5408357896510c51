//! Tests of `init` with unknown values: it lists them, or asks for them on a terminal. Also tests
//! invalid requests.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{init, read};
use crate::support::fixture;
use crate::support::run::pkgtool;
use crate::support::tree::{MODEL, Tree};

fn bare() -> Tree {
    let program = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    Tree::new().file(&format!("tiny/xnnpack/{MODEL}"), program)
}

#[test]
fn missing_options_are_named_with_their_reasons() {
    let tree = bare();
    let ran = pkgtool(["init", "tiny"])
        .within(tree.root())
        .run()
        .expect_code(2);
    insta::assert_snapshot!("missing_options", format!("{}{}", ran.stdout, ran.stderr));
    assert!(!tree.path("tiny/xnnpack/config.json").exists());
}

#[test]
fn the_table_says_what_was_inferred_from_what() {
    let tree = bare();
    let arguments = "init tiny --family f --license MIT --capability vision";
    let ran = pkgtool(arguments.split(' '))
        .within(tree.root())
        .run()
        .expect_code(0);
    insta::assert_snapshot!("table", format!("{}{}", ran.stdout, ran.stderr));
    let names = fs::read_dir(tree.path("tiny/xnnpack"))
        .expect("a directory")
        .count();
    assert_eq!(names, 2, "nothing is left beside the config");
}

/// Runs the tool on a terminal and types these lines.
fn on_a_terminal(directory: &Path, answers: &str) -> Option<(String, i32)> {
    let binary = env!("CARGO_BIN_EXE_pkgtool");
    let mut command = Command::new("script");
    command
        .args(["-qec", &format!("'{binary}' init tiny"), "/dev/null"])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(answers.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some((text, output.status.code().expect("a code")))
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_terminal_it_asks() {
    let tree = bare();
    let Some((text, code)) = on_a_terminal(tree.root(), "\nclasification\nvision\nMIT\n") else {
        return;
    };
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("did you mean `classification`?"), "{text}");
    let config = read(&tree.path("tiny/xnnpack/config.json"));
    assert_eq!(
        [&config["family"], &config["license"]],
        ["tiny", "MIT"],
        "{text}"
    );
    assert_eq!(config["capabilities"][0], "vision");

    let tree = bare();
    let (text, code) = on_a_terminal(tree.root(), "tiny\n\n\n\n").expect("as before");
    assert_eq!(code, 2, "{text}");
    assert!(!tree.path("tiny/xnnpack/config.json").exists());
}

#[test]
fn bad_requests_say_what_to_do() {
    let tree = bare().file("empty/notes.txt", "no models");
    let model = format!("tiny/xnnpack/{MODEL}");
    for (arguments, code, word) in [
        (&["nowhere"][..], 2, "nowhere"),
        (&[&model], 2, "give their directory"),
        (&["empty"], 3, "no model files in empty"),
        (&["tiny", "--model", "Tiny"], 2, "lower-case"),
        (&["tiny", "--family", ""], 2, "lower-case"),
        (&["tiny", "--license", ""], 2, "--license"),
        (&["tiny", "--backend", "cuda"], 2, "xnnpack"),
        (
            &["tiny", "--capability", "clasification"],
            2,
            "did you mean `classification`?",
        ),
        (
            &["tiny", "--precisions", "empty/notes.txt"],
            2,
            "not a usable precision list",
        ),
        (
            &["tiny", "--precisions", "nowhere.json"],
            2,
            "not a usable precision list",
        ),
        (
            &["tiny", "--backend", "mlx"],
            3,
            "no directory needs a config",
        ),
    ] {
        let arguments = std::iter::once("init").chain(arguments.iter().copied());
        let ran = pkgtool(arguments)
            .within(tree.root())
            .run()
            .expect_code(code);
        assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
    }
    let left = init(&tree.path("tiny"), &["--yes"]).expect_code(2);
    assert!(left.stderr.contains("--license NAME"), "{}", left.stderr);
}

#[test]
fn models_that_are_passed_over_are_told() {
    let model = format!("tiny/xnnpack/{MODEL}");
    for (settings, words) in [
        (
            "exclude = [\"*.pte\"]\n",
            &[&model[..], "excluded by `exclude`", "*.pte"][..],
        ),
        (
            "exclude = [\"tiny/\"]\n",
            &["tiny was skipped", "excluded by `exclude`"],
        ),
    ] {
        let tree = bare().file("pkgtool.toml", settings);
        let ran = pkgtool(["init", "."])
            .within(tree.root())
            .run()
            .expect_code(3);
        for word in words.iter().chain(&["no model files in ."]) {
            assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
        }
        // Files that a check skips are reported as well.
        let checked = pkgtool(["validate", "-v", "."])
            .within(tree.root())
            .run()
            .expect_code(3);
        assert!(
            checked.stderr.contains("excluded by `exclude`"),
            "{}",
            checked.stderr
        );
    }
}

#[cfg(unix)]
#[test]
fn a_directory_that_cannot_be_written_is_left_as_it_was() {
    let tree = bare();
    // The link leads into a file system that accepts no files, so no temporary file can be created
    // beside its target.
    let taken = tree.path("tiny/xnnpack/config.json");
    std::os::unix::fs::symlink("/proc/version", &taken).expect("a link");
    let arguments = "init tiny --force --family f --license MIT --capability vision";
    let ran = pkgtool(arguments.split(' '))
        .within(tree.root())
        .run()
        .expect_code(2);
    assert!(ran.stderr.contains("cannot write"), "{}", ran.stderr);
    assert!(taken.is_symlink());
}
