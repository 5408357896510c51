//! The README tells the truth: its commands are run and their output is compared, its rule table is
//! the tool's own.
//!
//! `README_UPDATE=1 cargo test --test it readme` writes the true output into the README.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const RULES_START: &str = "<!-- rules: the output of `pkgtool rules --format markdown` -->\n";
const RULES_END: &str = "<!-- end of rules -->";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn readme_path() -> PathBuf {
    root().join("README.md")
}

/// What a command line of the README prints, on both streams.
fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    assert_eq!(
        words.next(),
        Some("pkgtool"),
        "only pkgtool runs here: {line}"
    );
    let output = Command::new(env!("CARGO_BIN_EXE_pkgtool"))
        .args(words)
        .current_dir(root())
        .env("NO_COLOR", "1")
        .output()
        .expect("the binary runs");
    let mut text = String::from_utf8(output.stdout).expect("output is UTF-8");
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// The README with every console block's output as it is today.
fn true_readme(readme: &str) -> String {
    let mut result = String::new();
    let mut inside = false;
    for line in readme.lines() {
        if line == "```console" {
            inside = true;
        } else if line == "```" {
            inside = false;
        } else if inside && !line.starts_with("$ ") {
            continue;
        }
        result.push_str(line);
        result.push('\n');
        if inside && let Some(command) = line.strip_prefix("$ ") {
            result.push_str(&run(command));
        }
    }
    let (start, rest) = result.split_once(RULES_START).expect("a rule table");
    let (_, end) = rest
        .split_once(RULES_END)
        .expect("an end of the rule table");
    let table = run("pkgtool rules --format markdown");
    format!("{start}{RULES_START}{table}{RULES_END}{end}")
}

#[test]
fn sessions_and_tables_are_true() {
    let readme = fs::read_to_string(readme_path()).expect("README.md");
    let truth = true_readme(&readme);
    if std::env::var_os("README_UPDATE").is_some() {
        fs::write(readme_path(), &truth).expect("README.md can be written");
        return;
    }
    for (number, (written, real)) in readme.lines().zip(truth.lines()).enumerate() {
        assert_eq!(written, real, "README.md line {}", number + 1);
    }
    assert_eq!(readme.lines().count(), truth.lines().count());
}

#[test]
fn the_first_block_holds_the_two_commands() {
    let readme = fs::read_to_string(readme_path()).expect("README.md");
    let (_, block) = readme.split_once("```sh\n").expect("a shell block");
    let (block, _) = block.split_once("```").expect("its end");
    let commands: Vec<&str> = block.lines().collect();
    assert_eq!(
        commands,
        [
            "cargo run --release -- validate packages-examples",
            "tests/run"
        ]
    );
}
