//! Renders JUnit XML: a test suite per checked file, and a failed test case per failing finding.
//!
//! Findings that do not fail the run are in the output of the suite's passing test case.

use std::collections::HashMap;
use std::io::{self, Write};

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use super::ReportStyle;
use crate::diagnostic::{Diagnostic, Report, Severity};
use crate::source::text::escape_line;

pub(super) fn render(
    report: &Report,
    style: &ReportStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut junit = quick_junit::Report::new("pkgtool validate");
    let mut rest = report.diagnostics.as_slice();
    for file in &report.files {
        // Files and diagnostics are sorted by the same paths.
        let count = rest.partition_point(|d| d.source.path.as_str() <= file.as_str());
        let (own, later) = rest.split_at(count);
        rest = later;
        let denies = style.deny_warnings || report.denied.contains(file);
        junit.add_test_suite(suite(&escape_line(style.path(file)), own, denies));
    }
    let xml = junit.to_string().map_err(io::Error::other)?;
    out.write_all(xml.as_bytes())
}

/// Returns the suite of a file. With `denies`, warnings fail as well.
fn suite(file: &str, diagnostics: &[Diagnostic], denies: bool) -> TestSuite {
    let fails = |d: &&Diagnostic| match d.severity {
        Severity::Error => true,
        Severity::Warning => denies,
        Severity::Note => false,
    };
    let mut suite = TestSuite::new(file);
    let mut names: HashMap<String, usize> = HashMap::new();
    for diagnostic in diagnostics.iter().filter(fails) {
        // Dashboards treat two test cases with the same name as repeated runs of one.
        let name = case_name(diagnostic);
        let count = names.entry(name.clone()).or_default();
        *count += 1;
        let name = if *count > 1 {
            format!("{name} ({count})")
        } else {
            name
        };
        suite.add_test_case(failure(file, name, diagnostic));
    }
    let others: Vec<String> = diagnostics
        .iter()
        .filter(|d| !fails(d))
        .map(|d| format!("{}: {}", d.severity.name(), text(d)))
        .collect();
    if !others.is_empty() || suite.test_cases.is_empty() {
        let mut passed = TestCase::new("validate", TestCaseStatus::success());
        passed.set_classname(file);
        passed.extra.insert("file".into(), file.into());
        if !others.is_empty() {
            passed.set_system_out(others.join("\n"));
        }
        suite.add_test_case(passed);
    }
    suite
}

fn failure(file: &str, name: String, diagnostic: &Diagnostic) -> TestCase {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_type(diagnostic.rule.name);
    status.set_message(escape_line(&diagnostic.message));
    status.set_description(text(diagnostic));
    let mut case = TestCase::new(name, status);
    case.set_classname(file);
    let line = diagnostic.start().line.to_string();
    case.extra.insert("file".into(), file.into());
    case.extra.insert("line".into(), line.into());
    case
}

fn case_name(diagnostic: &Diagnostic) -> String {
    let name = format!("{} {}", diagnostic.rule.code, diagnostic.rule.name);
    if diagnostic.pointer.is_empty() {
        name
    } else {
        format!("{name} at {}", escape_line(&diagnostic.pointer))
    }
}

fn text(diagnostic: &Diagnostic) -> String {
    let start = diagnostic.start();
    let help = diagnostic.help.as_ref();
    let help = help.map_or(String::new(), |help| {
        format!("\nhelp: {}", escape_line(help))
    });
    format!(
        "{}:{}:{}: {} {}: {}{help}",
        escape_line(&diagnostic.source.path),
        start.line,
        start.column,
        diagnostic.rule.code,
        diagnostic.rule.name,
        escape_line(&diagnostic.message),
    )
}
