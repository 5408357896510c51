//! The number of findings of each rule.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde::Serialize;

use super::ReportStyle;
use super::human::summary_line;
use crate::diagnostic::{Align, Report, ReportSummary, Severity, TextTable};
use crate::source::text::write_json;

/// The findings of one rule and severity.
#[derive(Serialize)]
struct StatisticsRow {
    code: &'static str,
    rule: &'static str,
    severity: Severity,
    count: usize,
    files: usize,
}

#[derive(Serialize)]
struct StatisticsOutput {
    version: u32,
    summary: ReportSummary,
    statistics: Vec<StatisticsRow>,
}

/// Writes one line per rule, most frequent first.
pub fn statistics(report: &Report, style: &ReportStyle<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut table = TextTable::new([Align::Right, Align::Left, Align::Left, Align::Left]);
    for row in rows(report) {
        let files = if row.files == 1 { "file" } else { "files" };
        table.row([
            row.count.to_string(),
            row.code.to_owned(),
            row.severity.name().to_owned(),
            format!("{} ({} {files})", row.rule, row.files),
        ]);
    }
    write!(out, "{table}")?;
    if style.summary {
        writeln!(out, "{}", summary_line(report))?;
    }
    Ok(())
}

/// Writes the statistics as one JSON document, version 1. Later versions only add fields.
pub fn statistics_json(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let output = StatisticsOutput {
        version: 1,
        summary: report.summary(),
        statistics: rows(report),
    };
    write_json(&output, out)
}

fn rows(report: &Report) -> Vec<StatisticsRow> {
    let mut counts: BTreeMap<(&'static str, Severity), (&'static str, usize, BTreeSet<&str>)> =
        BTreeMap::new();
    for diagnostic in &report.diagnostics {
        let rule = diagnostic.rule;
        let entry = counts.entry((rule.code, diagnostic.severity));
        let (_, count, files) = entry.or_insert_with(|| (rule.name, 0, BTreeSet::new()));
        *count += 1;
        files.insert(&diagnostic.source.path);
    }
    let mut rows: Vec<StatisticsRow> = counts
        .into_iter()
        .map(|((code, severity), (rule, count, files))| StatisticsRow {
            code,
            rule,
            severity,
            count,
            files: files.len(),
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}
