//! Every rule on its fixtures `tests/fixtures/rules/PKGnnn/{bad,good}`, and the list of rules.
//!
//! `bad` contains packages with one fault each. All of them give findings of the rule at the
//! expected severity, and no error or warning of another rule. `good` contains similar packages
//! without the fault. The tests of the module `hostile` create files that Git cannot store (pipes,
//! loops, unreadable and huge files).

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use pkgtool_base::diagnostic::Severity::{self, Error, Note, Warning};
use pkgtool_check::validate::rule_metas;

use crate::support::fixture;
use crate::support::run::{Found, validate};

/// The public contract: names and default severities, in the order of the codes.
const RULES: [(&str, Severity); 61] = [
    ("empty-file", Error),
    ("json-syntax", Error),
    ("json-duplicate-key", Error),
    ("schema", Error),
    ("legacy-field", Error),
    ("precision-list-overlap", Error),
    ("variant-file-xor-components", Error),
    ("precision-unknown", Error),
    ("variant-duplicate", Warning),
    ("placeholder", Error),
    ("methods-nesting", Error),
    ("methods-unknown-component", Error),
    ("methods-missing", Note),
    ("tensor-dim", Error),
    ("file-missing", Error),
    ("file-outside-package", Error),
    ("file-empty", Error),
    ("file-lfs-pointer", Error),
    ("size-mismatch", Error),
    ("file-unlisted", Warning),
    ("file-shared", Warning),
    ("tokenizer-invalid", Error),
    ("tokenizer-expected", Note),
    ("backend-directory", Warning),
    ("file-name", Warning),
    ("license-unknown", Note),
    ("model-unreadable", Error),
    ("model-format", Note),
    ("method-not-in-model", Error),
    ("method-undeclared", Warning),
    ("tensor-count", Error),
    ("tensor-dtype", Error),
    ("tensor-rank", Error),
    ("tensor-shape", Error),
    ("tensor-dynamic", Error),
    ("tensor-name", Note),
    ("tensor-inexpressible", Note),
    ("backend-delegate", Warning),
    ("file-unreadable", Error),
    ("external-data", Error),
    ("findings-limit", Note),
    ("config-foreign", Note),
    ("config-missing", Warning),
    ("config-name", Error),
    ("size-directory", Warning),
    ("variant-identical", Warning),
    ("backends-disagree", Warning),
    ("tokenizer-exchanged", Error),
    ("config-duplicate", Warning),
    ("precision-evidence", Warning),
    ("variants-disagree", Warning),
    ("bundled-case", Warning),
    ("settings-invalid", Error),
    ("license-not-allowed", Error),
    ("backend-required", Error),
    ("capability-required", Error),
    ("exception-stale", Note),
    ("baseline-stale", Note),
    ("schema-id", Warning),
    ("file-name-case", Error),
    ("card-disagrees", Warning),
];

/// Rules whose bad packages cannot be stored in a repository; `hostile.rs` and `told.rs` create
/// them.
const GENERATED: [&str; 2] = ["PKG041", "PKG060"];

/// Packages whose findings have a severity other than the rule's default.
const OTHER_SEVERITY: [(&str, &str); 2] = [
    ("PKG028/bad/renamed/xnnpack/config.json", "error"),
    ("PKG038/bad/other/coreml/config.json", "error"),
];

/// Configs with which a faulty config is compared; they have no finding themselves.
const PARTNERS: [&str; 4] = [
    "PKG047/bad/coreml/config.json",
    "PKG049/bad/xnnpack/config.json",
    "PKG051/bad/backends/coreml/config.json",
    "PKG059/bad/siblings/coreml/config.json",
];

/// Rules that report a missing config.
const OF_NO_CONFIG: [&str; 2] = ["PKG043", "PKG044"];

/// Rules that report faults of project settings instead of configs.
const OF_SETTINGS: [&str; 3] = ["PKG053", "PKG057", "PKG058"];

fn rules() -> impl Iterator<Item = (String, &'static str)> {
    let rules = RULES.iter().zip(1..);
    rules.map(|((_, severity), number)| (format!("PKG{number:03}"), severity.name()))
}

fn findings_in(path: &str) -> Vec<Found> {
    validate(&fixture("rules"), path).findings()
}

/// Returns the configs and precision lists below a directory, by the paths that reports use.
fn checked_files(directory: &str) -> BTreeSet<String> {
    fn walk(directory: &Path, root: &Path, files: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).expect("a fixture directory") {
            let path: PathBuf = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, root, files);
            } else if path.ends_with("config.json") || path.ends_with("precisions.json") {
                let path = path.strip_prefix(root).expect("below the root");
                files.insert(path.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    let root = fixture("rules");
    let mut files = BTreeSet::new();
    walk(&root.join(directory), &root, &mut files);
    files
}

#[test]
fn the_list_of_rules_is_the_contract() {
    let metas = rule_metas();
    let real: Vec<_> = metas
        .iter()
        .map(|rule| (rule.name, rule.severity))
        .collect();
    assert_eq!(real, RULES);
    let codes: Vec<_> = metas.iter().map(|rule| rule.code.to_owned()).collect();
    let expected: Vec<_> = rules().map(|(code, _)| code).collect();
    assert_eq!(codes, expected, "codes must be in order");
    let names: BTreeSet<_> = metas.iter().map(|rule| rule.name).collect();
    assert_eq!(names.len(), metas.len(), "names must be unique");
    for name in names {
        let kebab = name
            .split('-')
            .all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase()));
        assert!(kebab, "{name}");
    }
}

#[test]
fn every_rule_explains_itself() {
    for rule in rule_metas() {
        let text = rule.explanation_text();
        let headings: Vec<_> = text.lines().filter(|line| line.starts_with("# ")).collect();
        let expected = [
            "# What it checks",
            "# Why",
            "# Example",
            "# Fix",
            "# What it does not see",
        ];
        assert_eq!(headings, expected, "{}", rule.code);
        assert!(text.starts_with(expected[0]), "{}", rule.code);
        for section in text.split("# ").skip(1) {
            let (heading, body) = section.split_once('\n').expect("a heading");
            assert!(!body.trim().is_empty(), "{}: {heading} is empty", rule.code);
        }
        assert!(rule.summary.ends_with('.'), "{}", rule.code);
    }
}

#[test]
fn every_rule_has_fixtures() {
    for (code, _) in rules() {
        for side in ["bad", "good"] {
            let made = side == "bad" && GENERATED.contains(&code.as_str());
            let there = fixture(&format!("rules/{code}/{side}")).is_dir();
            assert_eq!(there, !made, "{code}/{side}");
        }
    }
}

#[test]
fn bad_packages_have_this_fault_and_no_other() {
    for (code, severity) in rules().filter(|(code, _)| !GENERATED.contains(&code.as_str())) {
        let directory = format!("{code}/bad");
        let mut silent = checked_files(&directory);
        let without = OF_NO_CONFIG.contains(&code.as_str());
        assert!(silent.is_empty() == without, "{code}");
        silent.retain(|path| !PARTNERS.contains(&path.as_str()));
        if OF_SETTINGS.contains(&code.as_str()) {
            silent.clear();
        }
        let found = findings_in(&directory);
        assert!(!found.is_empty(), "{code}");
        for found in found {
            if found.code == code {
                assert!(!PARTNERS.contains(&found.path.as_str()), "{found:?}");
                let mut others = OTHER_SEVERITY.iter();
                let other = others.find(|(path, _)| *path == found.path);
                let expected = other.map_or(severity, |(_, severity)| severity);
                assert_eq!(found.severity, expected, "{found:?}");
                assert!(!found.help.is_empty() || code == "PKG004", "{found:?}");
                silent.remove(&found.path);
            } else {
                assert_eq!(found.severity, "note", "{code}: {found:?}");
            }
        }
        assert!(silent.is_empty(), "{code}: no finding in {silent:?}");
    }
}

#[test]
fn good_packages_are_clean() {
    for (code, _) in rules() {
        let ran = validate(&fixture("rules"), &format!("{code}/good")).expect_code(0);
        let count = ran.json()["summary"]["packages"].as_u64().expect("a count");
        assert!(count > 0 || code == "PKG006", "{code}: nothing was checked");
        for found in ran.findings() {
            assert_ne!(found.code, code, "{found:?}");
            assert_eq!(found.severity, "note", "{code}: {found:?}");
        }
    }
}

#[test]
fn findings_point_and_read_well() {
    let mut text = String::new();
    for (code, _) in rules().filter(|(code, _)| !GENERATED.contains(&code.as_str())) {
        for found in findings_in(&format!("{code}/bad")) {
            let (line, column) = found.at;
            let Found {
                path,
                pointer,
                message,
                help,
                ..
            } = &found;
            let path = path
                .strip_prefix(&format!("{code}/bad/"))
                .expect("the directory");
            writeln!(text, "{} {path}", found.code).expect("a string");
            writeln!(text, "  {pointer} {line}:{column}").expect("a string");
            writeln!(text, "  {message} | {help}").expect("a string");
        }
    }
    insta::assert_snapshot!(text);
}
