//! The tool's own JSON: version 1 of a contract that only grows.

use std::io::{self, Write};

use serde::Serialize;

use crate::diagnostic::{Diagnostic, Report, Severity, Summary};
use crate::source::Position;

#[derive(Serialize)]
struct Output<'a> {
    version: u32,
    summary: Summary,
    diagnostics: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    code: &'static str,
    rule: &'static str,
    severity: Severity,
    message: &'a str,
    path: &'a str,
    pointer: &'a str,
    span: Range,
    help: Option<&'a str>,
}

#[derive(Serialize)]
struct Range {
    start: Position,
    end: Position,
}

pub(super) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let output = Output {
        version: 1,
        summary: report.summary(),
        diagnostics: report.diagnostics.iter().map(entry).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &output)?;
    writeln!(out)
}

fn entry(diagnostic: &Diagnostic) -> Entry<'_> {
    Entry {
        code: diagnostic.rule.code,
        rule: diagnostic.rule.name,
        severity: diagnostic.severity,
        message: &diagnostic.message,
        path: &diagnostic.source.path,
        pointer: &diagnostic.pointer,
        span: Range {
            start: diagnostic.start(),
            end: diagnostic.end(),
        },
        help: diagnostic.help.as_deref(),
    }
}
