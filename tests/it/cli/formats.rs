//! Tests of report formats for editors, code review and GitLab, and of the number of findings
//! printed.

use std::sync::Arc;

use pkgtool_base::diagnostic::render::{ReportFormat, ReportStyle};
use pkgtool_base::diagnostic::{Anchor, Fix, Report, SourceText};
use pkgtool_base::source::edit::TextEdit;
use pkgtool_base::source::{Document, JsonPath, Span};
use pkgtool_check::validate::rule_metas;
use serde_json::{Value, json};

use crate::support::run::{Ran, pkgtool};
use crate::support::tree::{Tree, config};

/// Returns two packages with an error and a warning each, and a note.
fn tree() -> Tree {
    let mut first = config();
    first["license"] = json!("");
    first["capabilities"] = json!(["classification", "classifikation"]);
    let mut second = config();
    second["license"] = json!("see README");
    second["model"] = json!("Tiny");
    Tree::new()
        .package("a/xnnpack", &first)
        .package("b/models", &second)
}

fn run(tree: &Tree, arguments: &[&str]) -> Ran {
    let arguments = ["validate"].iter().chain(arguments);
    pkgtool(arguments).within(tree.root()).run()
}

#[test]
fn concise_has_a_line_for_each_finding() {
    let tree = tree();
    let findings = run(&tree, &["--format", "json"]).expect_code(1).findings();
    let concise = run(&tree, &["--format", "concise"]).expect_code(1).stdout;
    assert_eq!(concise.lines().count(), findings.len());
    for (line, found) in concise.lines().zip(&findings) {
        let (line_number, column) = found.at;
        let place = format!("{}:{line_number}:{column}: ", found.path);
        let rest = format!("{} {} {}", found.severity, found.code, found.message);
        assert_eq!(line, place + &rest);
    }
    let clean = Tree::with_package();
    assert_eq!(
        run(&clean, &["--format", "concise"]).expect_code(0).stdout,
        ""
    );
}

#[test]
fn grouped_has_every_finding_under_its_cause() {
    let tree = tree();
    let findings = run(&tree, &["--format", "json"]).findings();
    let grouped = run(&tree, &["--format", "grouped"]).expect_code(1).stdout;
    for found in &findings {
        let place = format!("  {}:{}:{}: ", found.path, found.at.0, found.at.1);
        assert!(grouped.contains(&(place + &found.message)), "{grouped}");
    }
    let groups = grouped.lines().filter(|line| line.contains("[PKG")).count();
    assert!(groups >= 2 && groups <= findings.len(), "{grouped}");
    assert!(
        grouped
            .lines()
            .last()
            .expect("a line")
            .contains("2 packages checked"),
        "{grouped}"
    );
}

#[test]
fn gitlab_gets_its_code_quality_report() {
    let tree = tree();
    let report = |tree: &Tree| run(tree, &["--format", "gitlab", "--root", "."]).json();
    let entries = report(&tree);
    let entries = entries.as_array().expect("an array");
    assert!(entries.len() >= 3, "{entries:?}");
    let mut fingerprints = Vec::new();
    for entry in entries {
        let keys: Vec<&str> = entry
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            keys,
            [
                "description",
                "check_name",
                "fingerprint",
                "severity",
                "location"
            ]
        );
        let severity = entry["severity"].as_str().expect("a word");
        assert!(["info", "minor", "major"].contains(&severity), "{severity}");
        assert!(
            entry["check_name"]
                .as_str()
                .expect("a name")
                .starts_with("PKG")
        );
        let path = entry["location"]["path"].as_str().expect("a path");
        assert!(
            path.ends_with("config.json") && !path.starts_with(['.', '/']),
            "{path}"
        );
        assert!(
            entry["location"]["lines"]["begin"]
                .as_u64()
                .expect("a line")
                >= 1
        );
        fingerprints.push(entry["fingerprint"].as_str().expect("hex").to_owned());
    }
    let prints = |value: &Value| -> Vec<String> {
        let entries = value.as_array().expect("an array").iter();
        entries.map(|one| one["fingerprint"].to_string()).collect()
    };
    let before = prints(&report(&tree));
    // A finding keeps its fingerprint when it only moves.
    let path = tree.path("a/xnnpack/config.json");
    let text = std::fs::read_to_string(&path).expect("a file");
    std::fs::write(&path, text.replacen('{', "{\n\n\n", 1)).expect("a file");
    assert_eq!(prints(&report(&tree)), before);
    let count = fingerprints.len();
    fingerprints.sort();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), count);
    assert_eq!(report(&Tree::with_package()), json!([]));
}

#[test]
fn reviewdog_gets_places_in_bytes() {
    let tree = Tree::with_package();
    let text = "{ \"model\": \"é\",\n  \"family\": \"é\", \"license\": \"\" }";
    let tree = tree.file("xnnpack/config.json", text);
    let result = run(&tree, &["--format", "rdjson", "--root", "."])
        .expect_code(1)
        .json();
    assert_eq!(result["source"]["name"], "pkgtool");
    let diagnostics = result["diagnostics"].as_array().expect("an array");
    assert!(diagnostics.len() > 2);
    for one in diagnostics {
        assert_eq!(one["location"]["path"], "xnnpack/config.json");
        let severity = one["severity"].as_str().expect("a word");
        assert!(
            ["ERROR", "WARNING", "INFO"].contains(&severity),
            "{severity}"
        );
        assert!(one["message"].is_string() && one["code"]["value"].is_string());
        for end in ["start", "end"] {
            let place = &one["location"]["range"][end];
            let line = place["line"].as_u64().expect("a line");
            let column = place["column"].as_u64().expect("a column");
            let length = text
                .lines()
                .nth(usize::try_from(line).expect("small") - 1)
                .expect("a line")
                .len();
            assert!(column >= 1 && column <= length as u64 + 1, "{one}");
        }
    }
    let license = diagnostics
        .iter()
        .find(|one| one["location"]["range"]["start"] == json!({ "line": 2, "column": 30 }));
    assert!(license.is_some(), "{diagnostics:#?}");
}

/// Returns a Reviewdog report of one finding with this fix.
fn suggested(text: &str, fix: Fix) -> Value {
    let document = Document::parse(text).expect("JSON");
    let source = Arc::new(SourceText::new("config.json".to_owned(), text.to_owned()));
    let rule = rule_metas()[0];
    let finding = rule
        .finding(Anchor::Value(JsonPath::root().key("b")), "wrong")
        .fix(fix);
    let report = Report {
        diagnostics: vec![finding.locate(&source, Some(&document))],
        ..Report::default()
    };
    let style = ReportStyle {
        rules: &rule_metas(),
        ..ReportStyle::default()
    };
    let mut out = Vec::new();
    ReportFormat::Rdjson
        .render(&report, &style, &mut out)
        .expect("memory");
    let value: Value = serde_json::from_slice(&out).expect("JSON");
    value["diagnostics"][0].clone()
}

#[test]
fn fixes_are_suggestions() {
    let text = "{\"a\": 1,\n \"b\": 2, \"c\": 3}";
    let at = |piece: &str| {
        let start = text.find(piece).expect("it is there");
        Span::new(start, start + piece.len())
    };
    let both = vec![
        TextEdit::replace(at("2"), "20"),
        TextEdit::replace(at("3"), "30"),
    ];
    let one = suggested(text, Fix::safe("more", both.clone()));
    assert_eq!(
        one["suggestions"],
        json!([{
            "range": { "start": { "line": 2, "column": 7 }, "end": { "line": 2, "column": 16 } },
            "text": "20, \"c\": 30",
        }])
    );
    let code = rule_metas()[0].code;
    let url = format!("https://pkgtool.dev/docs/rules/{code}/");
    assert_eq!(one["code"], json!({ "value": code, "url": url }));
    // Reviewdog suggestions can express neither renamed files nor conflicting edits.
    let renaming = Fix::safe("more", both).renaming("a".into(), "b".into());
    assert_eq!(suggested(text, renaming).get("suggestions"), None);
    let overlapping = vec![
        TextEdit::replace(at("2, "), ""),
        TextEdit::replace(at(", \"c"), ""),
    ];
    let overlapping = Fix::safe("less", overlapping);
    assert_eq!(suggested(text, overlapping).get("suggestions"), None);
}

#[test]
fn statistics_count_by_rule() {
    let tree = tree();
    let findings = run(&tree, &["--format", "json"]).findings();
    let json = run(&tree, &["--statistics", "--format", "json"])
        .expect_code(1)
        .json();
    let rows = json["statistics"].as_array().expect("an array");
    let total: u64 = rows
        .iter()
        .map(|row| row["count"].as_u64().expect("a number"))
        .sum();
    assert_eq!(total, findings.len() as u64);
    assert_eq!(json["version"], 1);
    for row in rows {
        let of_rule = findings
            .iter()
            .filter(|one| row["code"] == one.code && row["severity"] == one.severity);
        assert_eq!(row["count"], of_rule.count() as u64, "{row}");
    }
    let human = run(&tree, &["--statistics"]).expect_code(1).stdout;
    assert_eq!(human.lines().count(), rows.len() + 1, "{human}");
    assert!(
        human
            .lines()
            .last()
            .expect("a line")
            .starts_with("2 packages checked: "),
        "{human}"
    );
    let all = run(
        &tree,
        &["--statistics", "--max-findings", "0", "--format", "json"],
    )
    .json();
    assert_eq!(all["statistics"], json["statistics"]);
}

#[test]
fn at_most_so_many_findings_are_shown_and_all_count() {
    let tree = tree();
    let all = run(&tree, &["--format", "json"]);
    let ran = run(&tree, &["--format", "json", "--max-findings", "1"]).expect_code(1);
    assert_eq!(ran.json()["summary"], all.json()["summary"]);
    let shown = ran.findings();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].severity, "error");
    let others = all.findings().len() - 1;
    assert!(
        ran.stderr
            .contains(&format!("{others} more findings are not shown")),
        "{}",
        ran.stderr
    );
    let none = run(
        &tree,
        &["--max-findings", "0", "--format", "concise", "--quiet"],
    )
    .expect_code(1);
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", ""));
    let many = run(&tree, &["--format", "json", "--max-findings", "1000"]);
    assert_eq!(many.stdout, all.stdout);
    assert_eq!(many.stderr, "");
}
