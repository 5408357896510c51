//! The result of a command: one value with a form for people and one for programs.

use std::{fmt, io};

use serde::Serialize;

use super::output;

/// The result of a command.
pub(super) trait CommandReport {
    /// Describes the result for people, with a final newline.
    fn write(&self, text: &mut String) -> fmt::Result;

    /// Returns the value of the JSON document.
    fn document(&self) -> impl Serialize;
}

/// Returns the form that the user chose.
pub(super) fn rendered(report: &impl CommandReport, as_json: bool) -> String {
    if as_json {
        output::json(&report.document())
    } else {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = report.write(&mut text);
        text
    }
}

/// Prints the form that the user chose.
pub(super) fn print(report: &impl CommandReport, as_json: bool) -> io::Result<()> {
    output::print(&rendered(report, as_json))
}

/// Formats a size in a suitable unit.
pub(super) fn file_size(size: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let (size_f, units) = (size as f64, [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")]);
    let unit = units.into_iter().find(|(factor, _)| size_f >= *factor);
    match unit {
        Some((factor, unit)) => format!("{:.1} {unit}", size_f / factor),
        None => format!("{size} bytes"),
    }
}
