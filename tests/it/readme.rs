//! The README tells the truth: its commands are run and their output is compared, its rule table is
//! the tool's own.
//!
//! `README_UPDATE=1 cargo test --test it readme` writes the true output into the README. Blocks of
//! `console measured` hold times, or what a machine has: they are run too, and must end as they did,
//! but their output is only written anew, not compared.

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
    // 70 is a bug of the tool; a session that shows findings ends with 1.
    assert!(
        matches!(output.status.code(), Some(0..=3)),
        "{line}: {output:?}"
    );
    let mut text = String::from_utf8(output.stdout).expect("output is UTF-8");
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// What a block's output is worth.
#[derive(Clone, Copy, PartialEq)]
enum Block {
    /// No session.
    None,
    /// The same everywhere.
    Exact,
    /// Another on each machine.
    Measured,
}

/// The README with every console block's output as it is today; that of measured blocks only where
/// `measures`.
fn true_readme(readme: &str, measures: bool) -> String {
    let mut result = String::new();
    let mut block = Block::None;
    for line in readme.lines() {
        let keeps = block == Block::Measured && !measures;
        match line {
            "```console" => block = Block::Exact,
            "```console measured" => block = Block::Measured,
            "```" => block = Block::None,
            _ if block != Block::None && !keeps && !line.starts_with("$ ") => continue,
            _ => {}
        }
        result.push_str(line);
        result.push('\n');
        if let Some(command) = line.strip_prefix("$ ")
            && block != Block::None
        {
            let output = run(command);
            if !keeps {
                result.push_str(&output);
            }
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
    let updates = std::env::var_os("README_UPDATE").is_some();
    let truth = true_readme(&readme, updates);
    if updates {
        fs::write(readme_path(), &truth).expect("README.md can be written");
        return;
    }
    for (number, (written, real)) in readme.lines().zip(truth.lines()).enumerate() {
        assert_eq!(written, real, "README.md line {}", number + 1);
    }
    assert_eq!(readme.lines().count(), truth.lines().count());
}

/// Sessions with a server of the example packages: the commands of each `console served` block, in one shell
/// and with a server of its own. Ids, moments and floats are others each time; all else is compared.
#[cfg(feature = "serve")]
#[test]
fn the_walks_are_true() {
    use crate::support::environment::say;

    const START: &str = "```console served\n";
    if Command::new("curl").arg("--version").output().is_err() {
        say("SKIPPED the_walks_are_true: there is no curl");
        return;
    }
    let readme = fs::read_to_string(readme_path()).expect("README.md");
    let mut parts = readme.split(START);
    let mut text = parts.next().expect("a beginning").to_owned();
    let mut walks = 0;
    for part in parts {
        let (block, after) = part.split_once("```").expect("its end");
        let truth = walked(block);
        if std::env::var_os("README_UPDATE").is_none() {
            assert_eq!(without_what_varies(block), without_what_varies(&truth));
        }
        text.extend([START, &truth, "```", after]);
        walks += 1;
    }
    assert!(walks >= 2, "{walks} walks");
    if std::env::var_os("README_UPDATE").is_some() {
        fs::write(readme_path(), text).expect("README.md can be written");
    }
}

/// A session as it is today.
#[cfg(feature = "serve")]
fn walked(block: &str) -> String {
    use crate::support::gateway::Setup;

    const KEY: &str = "export KEY=pk_…";
    let gateway = Setup::new()
        .packages(root().join("packages-examples"))
        .start();
    let mut script = String::new();
    for command in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let command = command.replace(KEY, &format!("export KEY={}", gateway.key));
        let command = command.replace("127.0.0.1:8080", &gateway.address.to_string());
        script.extend(["echo @@@\n", &command, "\n"]);
    }
    let ran = Command::new("bash")
        .args(["-c", &script])
        .current_dir(root())
        .output()
        .expect("bash runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let mut outputs = said.split("@@@\n").skip(1);
    let mut truth = String::new();
    for line in block.lines().filter(|line| line.starts_with("$ ")) {
        truth.extend([line, "\n", outputs.next().unwrap_or_default()]);
    }
    truth
}

/// Digits and the letters of hexadecimal numbers, as one sign a run.
#[cfg(feature = "serve")]
fn without_what_varies(text: &str) -> Vec<String> {
    let varies = |c: char| c.is_ascii_digit() || "abcdef-.".contains(c);
    let line = |line: &str| {
        if line.starts_with("$ ") {
            return line.to_owned();
        }
        let mut kept = String::new();
        for c in line.chars() {
            if !varies(c) {
                kept.push(c);
            } else if !kept.ends_with('#') {
                kept.push('#');
            }
        }
        // Where an output was cut depends on its digits.
        kept.chars().take(50).collect()
    };
    text.lines().map(line).collect()
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
