//! Renders GitHub Actions workflow commands: `::error file=…,line=…::message`.
//!
//! Text is escaped as the runner decodes it: `%`, CR and LF everywhere, and also `:` and `,` in
//! properties. Invisible characters are made visible before, since logs show them unchanged.

use std::io::{self, Write};

use super::ReportStyle;
use crate::diagnostic::{Diagnostic, Report, Severity};
use crate::source::text::escape;

pub(super) fn render(
    report: &Report,
    style: &ReportStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for diagnostic in &report.diagnostics {
        write_command(diagnostic, style, out)?;
    }
    Ok(())
}

fn write_command(
    diagnostic: &Diagnostic,
    style: &ReportStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let level = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };
    let (start, end) = (diagnostic.start(), diagnostic.end());
    let path = property(&escape(style.path(&diagnostic.source.path)));
    let title = property(&format!(
        "{} {}",
        diagnostic.rule.code, diagnostic.rule.name
    ));
    write!(
        out,
        "::{level} file={path},line={},endLine={}",
        start.line, end.line
    )?;
    // The runner supports columns only for annotations within one line.
    if start.line == end.line {
        write!(out, ",col={},endColumn={}", start.column, end.column)?;
    }
    let help = diagnostic
        .help
        .as_ref()
        .map_or(String::new(), |help| format!("\nhelp: {}", escape(help)));
    let message = data(&format!("{}{help}", escape(&diagnostic.message)));
    writeln!(out, ",title={title}::{message}")
}

fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
