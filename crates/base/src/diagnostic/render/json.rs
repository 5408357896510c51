//! Renders the tool's own JSON, version 1. Later versions only add fields.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

use crate::diagnostic::{
    Applicability, Diagnostic, Fix, Report, ReportSummary, Severity, SourceText,
};
use crate::source::text::write_json;
use crate::source::{Span, TextPosition};

#[derive(Serialize)]
struct ReportOutput<'a> {
    version: u32,
    summary: ReportSummary,
    diagnostics: Vec<JsonEntry<'a>>,
}

#[derive(Serialize)]
struct JsonEntry<'a> {
    code: &'static str,
    rule: &'static str,
    severity: Severity,
    message: &'a str,
    path: &'a str,
    pointer: &'a str,
    span: JsonRange,
    help: Option<&'a str>,
    fix: Option<FixEntry<'a>>,
}

#[derive(Serialize)]
struct FixEntry<'a> {
    title: &'a str,
    applicability: Applicability,
    edits: Vec<Edit<'a>>,
    rename: Option<RenameEntry<'a>>,
}

#[derive(Serialize)]
struct Edit<'a> {
    span: JsonRange,
    replacement: &'a str,
}

#[derive(Serialize)]
struct RenameEntry<'a> {
    from: Cow<'a, str>,
    to: Cow<'a, str>,
}

#[derive(Serialize)]
struct JsonRange {
    start: TextPosition,
    end: TextPosition,
}

pub(super) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let output = ReportOutput {
        version: 1,
        summary: report.summary(),
        diagnostics: report.diagnostics.iter().map(entry).collect(),
    };
    write_json(&output, out)
}

fn entry(diagnostic: &Diagnostic) -> JsonEntry<'_> {
    JsonEntry {
        code: diagnostic.rule.code,
        rule: diagnostic.rule.name,
        severity: diagnostic.severity,
        message: &diagnostic.message,
        path: &diagnostic.source.path,
        pointer: &diagnostic.pointer,
        span: range(&diagnostic.source, diagnostic.span),
        help: diagnostic.help.as_deref(),
        fix: diagnostic
            .fix
            .as_ref()
            .map(|fix| fix_entry(fix, &diagnostic.source)),
    }
}

fn fix_entry<'a>(fix: &'a Fix, source: &SourceText) -> FixEntry<'a> {
    let edits = fix.edits.iter().map(|edit| Edit {
        span: range(source, edit.span),
        replacement: &edit.replacement,
    });
    FixEntry {
        title: &fix.title,
        applicability: fix.applicability,
        edits: edits.collect(),
        rename: fix.rename.as_ref().map(|rename| RenameEntry {
            from: rename.from.to_string_lossy(),
            to: rename.to.to_string_lossy(),
        }),
    }
}

fn range(source: &SourceText, span: Span) -> JsonRange {
    JsonRange {
        start: source.position(span.start),
        end: source.position(span.end),
    }
}
