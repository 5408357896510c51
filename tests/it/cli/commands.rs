//! Tests of the small commands: `explain`, `rules`, `schema`, `completions`, `man`, `version`.

use std::process::Stdio;

use pkgtool_check::validate::rule_metas;

use crate::support::fixture;
use crate::support::run::pkgtool;
use crate::support::tree::Tree;

#[test]
fn every_rule_is_explained_by_code_and_by_name() {
    for rule in rule_metas() {
        let by_code = pkgtool(["explain", rule.code]).run().expect_code(0);
        let by_name = pkgtool(["explain", rule.name]).run().expect_code(0);
        assert_eq!(by_code.stdout, by_name.stdout);
        let lower = pkgtool(["explain", &rule.code.to_lowercase()]).run();
        assert_eq!(by_code.stdout, lower.stdout);
        let head = format!(
            "{} {} ({})\n{}\n",
            rule.code,
            rule.name,
            rule.severity.name(),
            rule.summary
        );
        assert!(by_code.stdout.starts_with(&head), "{}", by_code.stdout);
        let is_fixable = by_code.stdout.contains("\nFixable: `pkgtool fix`");
        assert_eq!(is_fixable, rule.fix.is_some(), "{}", by_code.stdout);
        // The section `Fix` exists exactly for rules that have a fix.
        let (_, fix) = by_code.stdout.split_once("\n# Fix\n").expect("a heading");
        let (fix, _) = fix.split_once("\n# ").expect("another heading");
        assert_eq!(fix.contains("`pkgtool fix"), rule.fix.is_some(), "{fix}");
    }
    insta::assert_snapshot!(pkgtool(["explain", "PKG005"]).run().stdout);
    for unknown in ["PKG000", "PKG999", "no-such-rule", ""] {
        let ran = pkgtool(["explain", unknown]).run().expect_code(2);
        assert!(
            ran.stderr.contains("`pkgtool rules` lists them"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn every_rule_says_what_it_does_not_see() {
    for rule in rule_metas() {
        // Every explanation states the limits of its rule.
        let explanation = rule.explanation_text();
        let (_, unseen) = explanation
            .split_once("\n# What it does not see\n")
            .unwrap_or_else(|| panic!("{} does not say what it does not see", rule.code));
        assert!(unseen.trim().len() > 5, "{}: {unseen}", rule.code);
    }
}

#[test]
fn rules_are_listed_in_three_formats() {
    let table = pkgtool(["rules"]).run().expect_code(0).stdout;
    insta::assert_snapshot!(table);
    let markdown = pkgtool(["rules", "--format", "markdown"])
        .run()
        .expect_code(0)
        .stdout;
    assert_eq!(markdown.lines().count(), rule_metas().len() + 2);
    assert!(
        markdown.lines().all(|line| line.matches('|').count() == 6),
        "{markdown}"
    );
    let json = pkgtool(["rules", "--format", "json"])
        .run()
        .expect_code(0)
        .json();
    assert_eq!(json["version"], 1);
    let rules = json["rules"].as_array().expect("an array");
    for (rule, meta) in rules.iter().zip(rule_metas()) {
        assert_eq!(rule["code"], meta.code);
        assert_eq!(rule["rule"], meta.name);
        assert_eq!(rule["severity"], meta.severity.name());
        assert_eq!(rule["summary"], meta.summary);
        let fix = meta
            .fix
            .map_or(serde_json::Value::Null, |fix| fix.name().into());
        assert_eq!(rule["fix"], fix);
        assert_eq!(rule["explanation"], meta.explanation_text());
    }
    assert_eq!(rules.len(), rule_metas().len());
    pkgtool(["rules", "--format", "xml"]).run().expect_code(2);
}

#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = pkgtool(["completions", shell]).run().expect_code(0).stdout;
        assert!(script.contains("deny-warnings"), "{shell}");
    }
    // Completions offer rule codes and omit internal commands.
    for (shell, offer) in [
        ("bash", "PKG049"),
        ("zsh", "PKG049"),
        (
            "fish",
            r#"-n "__fish_pkgtool_using_subcommand explain" -f -a "PKG049" -d 'config-duplicate'"#,
        ),
        (
            "powershell",
            "::new('PKG049', 'PKG049', [CompletionResultType]::ParameterValue, 'config-duplicate')",
        ),
        ("elvish", "cand PKG049 'config-duplicate'"),
    ] {
        let script = pkgtool(["completions", shell]).run().expect_code(0).stdout;
        assert!(!script.contains("engine-process"), "{shell}");
        assert!(script.contains(offer), "{shell}");
        let after = script.split_once(offer).map_or("", |(_, after)| after);
        assert!(!after.contains(offer), "{shell} offers it twice");
    }
    pkgtool(["completions", "cmd"]).run().expect_code(2);
    let page = pkgtool(["man"]).run().expect_code(0).stdout;
    assert!(page.contains(".TH pkgtool 1"), "{page}");
    let tree = Tree::new();
    pkgtool(["man", "--dir", "man1"])
        .within(tree.root())
        .run()
        .expect_code(0);
    assert!(tree.path("man1/pkgtool-validate.1").is_file());
    let tree = tree.file("file", "");
    pkgtool(["man", "--dir", "file"])
        .within(tree.root())
        .run()
        .expect_code(2);
}

#[test]
fn help_is_printed() {
    for command in [
        "validate",
        "inspect",
        "explain",
        "rules",
        "schema",
        "completions",
        "man",
    ] {
        let help = pkgtool([command, "--help"]).run().expect_code(0).stdout;
        assert!(help.contains("Usage: "), "{help}");
    }
    let help = pkgtool(["validate", "--help"]).run().stdout;
    assert!(help.contains("70  a bug in this tool"), "{help}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for (arguments, code) in [
        (&["rules", "--format", "json"][..], 0),
        (&["completions", "bash"], 0),
        // A closed pipe does not change the exit code of findings.
        (&["validate", "rules"], 1),
        (&["validate", "--format", "sarif", "rules"], 1),
    ] {
        let mut command = pkgtool(arguments).within(fixture("")).into_command();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn both_spellings_of_json_are_understood() {
    let model = fixture("models/add_linear_xnnpack_fp32.pte");
    let model = model.to_str().expect("UTF-8");
    let rules = fixture("rules/PKG024/good");
    let rules = rules.to_str().expect("UTF-8");
    for (command, more) in [
        ("inspect", &[model][..]),
        ("rules", &[]),
        ("validate", &[rules]),
    ] {
        let outputs = [&["--json"][..], &["--format", "json"], &["--format=json"]].map(|option| {
            let arguments = std::iter::once(&command).chain(option).chain(more);
            let ran = pkgtool(arguments).run().expect_code(0);
            assert!(ran.json().is_object());
            ran.stdout
        });
        assert_eq!(outputs[0], outputs[1], "{command}");
        assert_eq!(outputs[0], outputs[2], "{command}");
    }
    pkgtool(["inspect", "--format", "yaml", model])
        .run()
        .expect_code(2);
    // Every argument after `--` is a path.
    pkgtool(["validate", "--", "--json"]).run().expect_code(2);
}
