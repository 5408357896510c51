//! Control characters, escape sequences and bidirectional marks: no report format prints them raw.

use std::sync::Arc;

use pkgtool_base::diagnostic::render::{ReportFormat, ReportStyle, statistics, statistics_json};
use pkgtool_base::diagnostic::{Anchor, Finding, Fix, Report, SourceText};
use pkgtool_base::source::Span;
use pkgtool_base::source::edit::TextEdit;
use pkgtool_base::source::text::is_hidden;
use pkgtool_check::validate::settings_invalid;
use proptest::prelude::*;
use serde_json::Value;

use crate::support::run::pkgtool;
use crate::support::tree::{Tree, config};

fn report(path: &str, message: &str, help: &str, text: &str) -> Report {
    let source = Arc::new(SourceText::new(path.to_owned(), text.to_owned()));
    let edit = TextEdit {
        span: Span::new(0, 0),
        replacement: help.to_owned(),
    };
    let finding: Finding = settings_invalid(Anchor::Text(Span::new(0, 0)), message);
    let fix = Some(Fix::safe(message.to_owned(), vec![edit]));
    let diagnostic = finding.help(help.to_owned()).fix(fix).locate(&source, None);
    Report {
        diagnostics: vec![diagnostic; 2],
        files: vec![path.to_owned()],
        ..Report::default()
    }
}

fn rendered(report: &Report) -> Vec<(&'static str, String)> {
    let rules = pkgtool_check::validate::rule_metas();
    let style = ReportStyle {
        rules: &rules,
        ..ReportStyle::default()
    };
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let mut all: Vec<_> = ReportFormat::ALL
        .into_iter()
        .map(|format| {
            let mut out = Vec::new();
            format
                .render(report, &style, &mut out)
                .expect("writing to memory succeeds");
            (format.name(), text(out))
        })
        .collect();
    let (mut lines, mut json) = (Vec::new(), Vec::new());
    statistics(report, &style, &mut lines).expect("writing to memory succeeds");
    statistics_json(report, &mut json).expect("writing to memory succeeds");
    all.extend([("statistics", text(lines)), ("statistics-json", text(json))]);
    all
}

/// Returns the message after parsing, for formats that are JSON; it must equal the original.
fn parsed(name: &str, text: &str) -> Option<String> {
    let pointer = match name {
        "json" | "rdjson" => "/diagnostics/0/message",
        "sarif" => "/runs/0/results/0/message/text",
        "gitlab" => "/0/description",
        _ => return None,
    };
    let value: Value = serde_json::from_str(text).expect("JSON");
    Some(value.pointer(pointer)?.as_str()?.to_owned())
}

fn any_text() -> impl Strategy<Value = String> {
    let nasty = prop::char::ranges(
        vec![
            '\0'..='\u{1f}',
            '\u{7f}'..='\u{9f}',
            '\u{200b}'..='\u{206f}',
            '\u{61c}'..='\u{61c}',
            '\u{feff}'..='\u{feff}',
            '\u{e0000}'..='\u{e007f}',
            'a'..='f',
        ]
        .into(),
    );
    prop::collection::vec(prop_oneof![nasty, any::<char>()], 0..40)
        .prop_map(|all| all.into_iter().collect())
}

fn is_raw(c: char, after: Option<char>) -> bool {
    match c {
        '\n' | '\t' => false,
        '\r' => after != Some('\n'),
        c => is_hidden(c),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_format_shows_a_hidden_character(
        path in any_text(), message in any_text(), help in any_text(), text in any_text(),
    ) {
        let report = report(&path, &message, &help, &text);
        for (name, shown) in rendered(&report) {
            let mut characters = shown.chars().peekable();
            while let Some(c) = characters.next() {
                let after = characters.peek().copied();
                prop_assert!(!is_raw(c, after), "{name}: {c:?} in {shown:?}");
            }
            if let Some(read) = parsed(name, &shown) {
                prop_assert!(read.starts_with(&message), "{name}: expected {message:?}, got {read:?}");
            }
        }
    }
}

#[test]
fn names_out_of_files_are_written_out_by_every_command() {
    let evil = "a\u{1b}[31m\u{202e}b\u{9b}c";
    let mut changed = config();
    changed["model"] = evil.into();
    changed["license"] = evil.into();
    changed["variants"][0]["methods"][evil] = changed["variants"][0]["methods"]["forward"].clone();
    let tree = Tree::new()
        .package("a/xnnpack", &config())
        .package("b/xnnpack", &changed);
    for arguments in [
        &["validate", "b"][..],
        &["validate", "--format", "json", "b"],
        &["validate", "--format", "github", "b"],
        &["validate", "--format", "junit", "b"],
        &["diff", "a", "b"],
        &["diff", "--format", "json", "a", "b"],
        &["diff", "--format", "markdown", "a", "b"],
        &["fix", "--diff", "b"],
        &["init", "--dry-run", "b"],
        #[cfg(feature = "run")]
        &["run", "b", "--input", "zeros"],
        #[cfg(feature = "run")]
        &["run", "b", "--method", evil, "--json"],
    ] {
        let ran = pkgtool(arguments.iter().copied()).within(tree.root()).run();
        let shown = format!("{}{}", ran.stdout, ran.stderr);
        let raw = shown
            .chars()
            .find(|c| is_hidden(*c) && !matches!(c, '\n' | '\t'));
        assert_eq!(raw, None, "{arguments:?}: {shown}");
    }
}
