//! Output formats of a comparison, one module each.

mod human;
mod json;
mod markdown;

use std::io::{self, Write};

use super::Difference;

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffFormat {
    /// Text for people.
    Human,
    /// One JSON document.
    Json,
    /// Markdown, for a release note.
    Markdown,
}

/// Settings of the renderers.
#[derive(Debug, Clone, Copy)]
pub struct DiffStyle<'a> {
    /// The name of the older version.
    pub old: &'a str,
    /// The name of the newer version.
    pub new: &'a str,
    /// Use terminal colours (text output only).
    pub color: bool,
}

impl DiffFormat {
    /// Writes the comparison to `out`.
    pub fn render(
        self,
        difference: &Difference,
        style: &DiffStyle<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match self {
            Self::Human => human::render(difference, style, out),
            Self::Json => json::render(difference, style, out),
            Self::Markdown => markdown::render(difference, style, out),
        }
    }
}

/// Formats a summary like `1 breaking, 2 compatible and 3 cosmetic changes`.
fn counts(difference: &Difference) -> String {
    let summary = difference.summary();
    let numbers: Vec<String> = [
        (summary.breaking, "breaking"),
        (summary.compatible, "compatible"),
        (summary.cosmetic, "cosmetic"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, name)| format!("{count} {name}"))
    .collect();
    let noun = match difference.changes.len() {
        1 => "change",
        _ => "changes",
    };
    match &numbers[..] {
        [] => "no changes".to_owned(),
        [one] => format!("{one} {noun}"),
        [most @ .., last] => format!("{} and {last} {noun}", most.join(", ")),
    }
}
