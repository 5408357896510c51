//! The README and the book in `docs/`: their sessions are run and the output is compared, the pages of rules are
//! generated, links lead somewhere.
//!
//! `cargo xtask book` writes the actual output into the pages. A block of
//! - `console` has the same output everywhere;
//! - `console measured` has times or depends on the machine: its commands must succeed, its output is not compared;
//! - `console served` runs in one shell, against a server of the example packages. Numbers are not compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::support::files::{pages, root};

const RULES_START: &str = "<!-- rules: the output of `pkgtool rules --format markdown` -->\n";
const RULES_END: &str = "<!-- end of rules -->";

/// Serialises the tests that write pages.
static PAGES: Mutex<()> = Mutex::new(());

fn lock_pages() -> MutexGuard<'static, ()> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of the clone in the pages.
const CLONE: &str = "/home/me/pkgtool";

fn updates() -> bool {
    std::env::var_os("BOOK_UPDATE").is_some()
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

fn name(page: &Path) -> String {
    let inside = page.strip_prefix(root()).expect("a page of the repository");
    inside.display().to_string()
}

/// Returns the words of a command line. Single quotes keep spaces.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    let mut words = vec![String::new()];
    for (place, part) in parts {
        let is_quoted = place % 2 == 1;
        for letter in part.chars() {
            if letter.is_whitespace() && !is_quoted {
                words.push(String::new());
            } else {
                words.last_mut().expect("it has a word").push(letter);
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Runs a `pkgtool` command line and returns its output, standard output first.
fn run(line: &str) -> String {
    let words = words(line);
    let (program, arguments) = words.split_first().expect("a command");
    assert_eq!(program, "pkgtool", "only pkgtool runs here: {line}");
    let output = Command::new(env!("CARGO_BIN_EXE_pkgtool"))
        .args(arguments)
        .current_dir(root())
        .env("NO_COLOR", "1")
        // Sessions remove what they sent to devices.
        .env(
            "XDG_CACHE_HOME",
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"),
        )
        .output()
        .expect("the binary runs");
    // 70 is a bug of the tool; a session that shows findings ends with 1.
    assert!(
        matches!(output.status.code(), Some(0..=3)),
        "{line}: {output:?}"
    );
    let mut text = String::from_utf8(output.stdout).expect("output is UTF-8");
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    // A page must not depend on the folder of the clone.
    let clone = root().to_str().expect("the path is UTF-8");
    text.replace(clone, CLONE)
}

/// The kind of a Markdown code block.
#[derive(Clone, Copy, PartialEq)]
enum Block {
    /// Outside of sessions.
    Other,
    /// The output is the same everywhere.
    Exact,
    /// The output differs between machines.
    Measured,
}

/// Returns a page with the actual output in its `console` blocks, and in its measured ones if `measures`.
fn with_actual_output(page: &str, measures: bool) -> String {
    let mut result = String::new();
    let mut block = Block::Other;
    for line in page.lines() {
        let keeps = block == Block::Measured && !measures;
        match line {
            "```console" => block = Block::Exact,
            "```console measured" => block = Block::Measured,
            "```" => block = Block::Other,
            _ if block != Block::Other && !keeps && !line.starts_with("$ ") => continue,
            _ => {}
        }
        result.push_str(line);
        result.push('\n');
        if let Some(command) = line.strip_prefix("$ ")
            && block != Block::Other
        {
            let output = run(command);
            if !keeps {
                result.push_str(&output);
            }
        }
    }
    result
}

/// Compares a page with what it should be, or writes it.
fn check(page: &Path, actual: &str) {
    if updates() {
        fs::create_dir_all(page.parent().expect("a folder")).expect("the folder can be made");
        fs::write(page, actual).expect("the page can be written");
        return;
    }
    let written = read(page);
    for (number, (written, actual)) in written.lines().zip(actual.lines()).enumerate() {
        assert_eq!(written, actual, "{} line {}", name(page), number + 1);
    }
    assert_eq!(
        written.lines().count(),
        actual.lines().count(),
        "{}",
        name(page)
    );
}

#[test]
fn sessions_print_what_the_pages_show() {
    let _lock = lock_pages();
    let mut sessions = 0;
    for page in pages() {
        let written = read(&page);
        sessions += written.matches("```console\n").count()
            + written.matches("```console measured\n").count();
        check(&page, &with_actual_output(&written, updates()));
    }
    assert!(sessions >= 20, "{sessions} sessions");
}

/// Runs the commands of each `console served` block in one shell, against a server of its own.
#[cfg(feature = "serve")]
#[test]
fn served_sessions_print_what_the_pages_show() {
    use crate::support::environment::say;

    const START: &str = "```console served\n";
    if Command::new("curl").arg("--version").output().is_err() {
        say("SKIPPED served_sessions_print_what_the_pages_show: curl is not installed");
        return;
    }
    let _lock = lock_pages();
    let mut sessions = 0;
    for page in pages() {
        let written = read(&page);
        let mut parts = written.split(START);
        let mut text = parts.next().expect("a beginning").to_owned();
        for part in parts {
            let (block, after) = part.split_once("```").expect("the end of a block");
            let actual = served(block);
            if !updates() {
                assert_eq!(
                    without_numbers(block),
                    without_numbers(&actual),
                    "{}",
                    name(&page)
                );
            }
            text.extend([START, &actual, "```", after]);
            sessions += 1;
        }
        if updates() {
            fs::write(&page, text).expect("the page can be written");
        }
    }
    assert!(sessions >= 3, "{sessions} sessions");
}

/// Returns a `console served` block with the actual output.
#[cfg(feature = "serve")]
fn served(block: &str) -> String {
    use crate::support::gateway::Setup;

    let gateway = Setup::new()
        .packages(root().join("packages-examples"))
        .settings("[workers]\nlisten = \"127.0.0.1:0\"")
        .start();
    let data = format!("--data-dir {}", gateway.data().display());
    let mut script = String::new();
    for command in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let command = command
            .replace("pk_…", &gateway.key)
            .replace("127.0.0.1:8080", &gateway.address.to_string())
            .replace("127.0.0.1:10601", &gateway.gate())
            .replace("--data-dir data", &data);
        script.extend(["echo @@@\n", &command, "\n"]);
    }
    let program = Path::new(env!("CARGO_BIN_EXE_pkgtool"));
    let folder = program.parent().expect("a folder");
    let others = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{others}", folder.display());
    let ran = Command::new("bash")
        .args(["-c", &script])
        .current_dir(root())
        .env("PKGTOOL_URL", format!("http://{}", gateway.address))
        .env("PATH", path)
        // The user's data directory.
        .env("XDG_DATA_HOME", gateway.data().join("user"))
        .output()
        .expect("bash runs");
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    let mut outputs = printed.split("@@@\n").skip(1);
    let mut actual = String::new();
    for line in block.lines().filter(|line| line.starts_with("$ ")) {
        actual.extend([line, "\n", outputs.next().unwrap_or_default()]);
    }
    actual
}

/// Replaces each run of digits and of the letters of hexadecimal numbers by one sign.
#[cfg(feature = "serve")]
fn without_numbers(text: &str) -> Vec<String> {
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
        // The place where `cut` ends a line depends on its digits.
        kept.chars().take(50).collect()
    };
    text.lines().map(line).collect()
}

#[test]
fn every_rule_has_a_page() {
    let index = root().join("docs/rules/index.md");
    let written = read(&index);
    let (start, rest) = written.split_once(RULES_START).expect("a table of rules");
    let (_, end) = rest.split_once(RULES_END).expect("an end of the table");
    let table = run("pkgtool rules --format markdown");
    check(
        &index,
        &format!("{start}{RULES_START}{table}{RULES_END}{end}"),
    );

    let all = run("pkgtool rules --format page");
    let mut expected = vec![index];
    for section in all.split("\n## ").skip(1) {
        let (code, body) = section.split_once('\n').expect("a heading");
        let page = root().join(format!("docs/rules/{code}.md"));
        let body = body.replace("\n### ", "\n## ");
        check(&page, &format!("# {code}\n{}\n", body.trim_end()));
        expected.push(page);
    }
    let mut there: Vec<PathBuf> = fs::read_dir(root().join("docs/rules"))
        .expect("the pages of rules")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    there.sort();
    expected.sort();
    assert_eq!(there, expected, "a page for each rule and no other");
}

#[test]
fn the_readme_is_a_front_door() {
    let readme = read(&root().join("README.md"));
    let lines = readme.lines().count();
    assert!(lines <= 250, "README.md has {lines} lines, at most 250");
    let (_, block) = readme.split_once("```").expect("a block");
    let block = block
        .strip_prefix("sh\n")
        .expect("the first block is a shell block");
    let (block, _) = block.split_once("```").expect("the end of the block");
    let commands: Vec<&str> = block.lines().collect();
    assert_eq!(
        commands,
        [
            "cargo run --release --no-default-features -- validate packages-examples",
            "tests/run"
        ]
    );
    let overview = read(&root().join("docs/architecture/index.md"));
    assert!(overview.lines().count() <= 400);
}

/// `.ci/docs` checks the links between pages of the book; this test checks those of the other pages.
#[test]
fn links_of_the_root_pages_lead_to_files() {
    let mut links = 0;
    for page in pages() {
        if page.starts_with(root().join("docs")) {
            continue;
        }
        let text = read(&page);
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                root().join(file)
            };
            assert!(target.exists(), "{}: `{link}` does not exist", name(&page));
            if !anchor.is_empty() {
                let target = read(&target);
                let anchors = target.lines().filter_map(anchor_of);
                assert!(
                    anchors.into_iter().any(|found| found == anchor),
                    "{}: no heading for `{link}`",
                    name(&page)
                );
            }
            links += 1;
        }
    }
    assert!(links >= 20, "{links} links");
}

/// Returns the anchor of a heading.
fn anchor_of(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = heading.chars().filter_map(|c| match c {
        ' ' | '-' => Some('-'),
        c if c.is_alphanumeric() || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    Some(kept.collect())
}
