//! Renders the Reviewdog Diagnostic Format:
//! <https://github.com/reviewdog/reviewdog/tree/master/proto/rdf>.
//!
//! Columns count UTF-8 bytes in this format. A fix becomes one suggestion, which replaces the text
//! from its first to its last edit. Fixes that rename files are omitted, since the format cannot
//! express them.

use std::io::{self, Write};

use serde::Serialize;

use super::ReportStyle;
use crate::diagnostic::{Diagnostic, Fix, Report, Severity, SourceText};
use crate::source::text::write_json;
use crate::source::{Span, edit};

#[derive(Serialize)]
struct DiagnosticResult<'a> {
    source: RdjsonSource,
    diagnostics: Vec<RdjsonEntry<'a>>,
}

#[derive(Serialize)]
struct RdjsonSource {
    name: &'static str,
}

#[derive(Serialize)]
struct RdjsonEntry<'a> {
    message: String,
    location: RdjsonLocation<'a>,
    severity: &'static str,
    code: Code,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suggestions: Vec<RdjsonSuggestion>,
}

#[derive(Serialize)]
struct RdjsonLocation<'a> {
    path: &'a str,
    range: RdjsonRange,
}

#[derive(Serialize)]
struct RdjsonRange {
    start: Place,
    end: Place,
}

#[derive(Serialize)]
struct Place {
    line: usize,
    column: usize,
}

#[derive(Serialize)]
struct Code {
    value: &'static str,
    url: String,
}

#[derive(Serialize)]
struct RdjsonSuggestion {
    range: RdjsonRange,
    text: String,
}

pub(super) fn render(
    report: &Report,
    style: &ReportStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let result = DiagnosticResult {
        source: RdjsonSource { name: "pkgtool" },
        diagnostics: report
            .diagnostics
            .iter()
            .map(|diagnostic| entry(diagnostic, style))
            .collect(),
    };
    write_json(&result, out)
}

fn entry<'a>(diagnostic: &'a Diagnostic, style: &'a ReportStyle<'_>) -> RdjsonEntry<'a> {
    let source = &diagnostic.source;
    let code = diagnostic.rule.code;
    let help = diagnostic.help.as_ref();
    let help = help.map_or(String::new(), |help| format!("\nhelp: {help}"));
    RdjsonEntry {
        message: format!("{}{help}", diagnostic.message),
        location: RdjsonLocation {
            path: style.path(&source.path),
            range: range(source, diagnostic.span),
        },
        severity: match diagnostic.severity {
            Severity::Error => "ERROR",
            Severity::Warning => "WARNING",
            Severity::Note => "INFO",
        },
        code: Code {
            value: code,
            url: diagnostic.rule.page(),
        },
        suggestions: diagnostic
            .fix
            .iter()
            .filter_map(|fix| suggestion(source, fix))
            .collect(),
    }
}

fn suggestion(source: &SourceText, fix: &Fix) -> Option<RdjsonSuggestion> {
    if fix.rename.is_some() {
        return None;
    }
    let start = fix.edits.iter().map(|edit| edit.span.start).min()?;
    let end = fix.edits.iter().map(|edit| edit.span.end).max()?;
    let mended = edit::apply(&source.text, &fix.edits)?;
    let behind = source.text.len().checked_sub(end)?;
    let text = mended.get(start..mended.len().checked_sub(behind)?)?;
    Some(RdjsonSuggestion {
        range: range(source, Span::new(start, end)),
        text: text.to_owned(),
    })
}

fn range(source: &SourceText, span: Span) -> RdjsonRange {
    RdjsonRange {
        start: place(source, span.start),
        end: place(source, span.end),
    }
}

fn place(source: &SourceText, offset: usize) -> Place {
    let before = source.text.as_bytes().get(..offset).unwrap_or_default();
    let newline = before.iter().rposition(|byte| *byte == b'\n');
    Place {
        line: source.position(offset).line,
        column: before.len() - newline.map_or(0, |at| at + 1) + 1,
    }
}
