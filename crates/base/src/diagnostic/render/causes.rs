//! Renders findings grouped by their cause, so that a repeated mistake is shown only once.

use std::io::{self, Write};

use super::ReportStyle;
use super::grouped::{groups, place};
use super::human::summary_line;
use crate::diagnostic::Report;
use crate::source::text::defuse_line;

pub(super) fn render(
    report: &Report,
    style: &ReportStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for group in groups(&report.diagnostics) {
        let first = group.first();
        let (count, files) = (group.findings().len(), group.files());
        writeln!(
            out,
            "{}[{}] {}, {count} in {files} file{}",
            first.severity.name(),
            first.rule.code,
            first.rule.name,
            if files == 1 { "" } else { "s" },
        )?;
        for finding in group.findings() {
            writeln!(
                out,
                "  {}: {}",
                place(finding),
                defuse_line(&finding.message)
            )?;
        }
        if let Some(help) = &first.help {
            writeln!(out, "  help: {}", defuse_line(help))?;
        }
        writeln!(out)?;
    }
    if style.summary {
        writeln!(out, "{}", summary_line(report))?;
    }
    Ok(())
}
