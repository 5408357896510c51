//! How a finding can be mended, as data: a rule proposes, `fix`, editors and reports carry it out or on.

use std::path::PathBuf;

use serde::Serialize;

use crate::source::edit::TextEdit;

/// Whether a fix may be made unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Applicability {
    /// What it writes is certain: the files say so, or the format leaves no choice.
    Safe,
    /// It decides something that is the author's to decide.
    Unsafe,
}

impl Applicability {
    /// `safe` or `unsafe`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Unsafe => "unsafe",
        }
    }
}

/// What mends a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// What it does, as an order: `write "size_bytes": 12`.
    pub title: String,
    /// Whether it may be made unasked.
    pub applicability: Applicability,
    /// Changes to the text of the file that the finding is in; they don't overlap.
    pub edits: Vec<TextEdit>,
    /// A file that gets another name, before the text is changed.
    pub rename: Option<Rename>,
}

/// A file of a package and its new path, in the same directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// The path as it is.
    pub from: PathBuf,
    /// The path as it shall be. Nothing may be there.
    pub to: PathBuf,
}

impl Fix {
    /// A fix that may be made unasked.
    pub fn safe(title: impl Into<String>, edits: Vec<TextEdit>) -> Self {
        Self::new(Applicability::Safe, title, edits)
    }

    /// A fix for the author to decide.
    pub fn needs_consent(title: impl Into<String>, edits: Vec<TextEdit>) -> Self {
        Self::new(Applicability::Unsafe, title, edits)
    }

    /// Also gives a file another name.
    #[must_use]
    pub fn renaming(mut self, from: PathBuf, to: PathBuf) -> Self {
        self.rename = Some(Rename { from, to });
        self
    }

    fn new(applicability: Applicability, title: impl Into<String>, edits: Vec<TextEdit>) -> Self {
        Self {
            title: title.into(),
            applicability,
            edits,
            rename: None,
        }
    }
}
