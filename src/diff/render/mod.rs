//! Renderings of a difference: one file a format.

mod human;
mod json;
mod markdown;

use std::io::{self, Write};

use super::Difference;

/// A way to write a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Human,
    /// One JSON document.
    Json,
    /// Markdown, for a release note.
    Markdown,
}

/// What renderers need beside the difference.
#[derive(Debug, Clone, Copy)]
pub struct Style<'a> {
    /// What the older version is called.
    pub old: &'a str,
    /// What the newer version is called.
    pub new: &'a str,
    /// Whether to write terminal colours (human only).
    pub color: bool,
}

impl Format {
    /// Writes the difference.
    pub fn render(
        self,
        difference: &Difference,
        style: &Style<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match self {
            Self::Human => human::render(difference, style, out),
            Self::Json => json::render(difference, style, out),
            Self::Markdown => markdown::render(difference, style, out),
        }
    }
}

/// `1 breaking, 2 compatible and 3 cosmetic changes`.
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
