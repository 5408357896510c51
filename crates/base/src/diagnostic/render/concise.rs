//! Renders one finding per line in the style of compilers. Editors and terminals turn the locations
//! into links.

use std::io::{self, Write};

use super::grouped::place;
use crate::diagnostic::Report;
use crate::source::text::defuse_line;

pub(super) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for diagnostic in &report.diagnostics {
        writeln!(
            out,
            "{}: {} {} {}",
            place(diagnostic),
            diagnostic.severity.name(),
            diagnostic.rule.code,
            defuse_line(&diagnostic.message),
        )?;
    }
    Ok(())
}
