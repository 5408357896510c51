//! Fixes of findings, as data. A rule proposes a fix; `pkgtool fix` and editors apply it, and
//! reports include it.

use std::path::PathBuf;

use serde::Serialize;

use crate::source::edit::TextEdit;

/// States whether a fix may be applied without asking the author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Applicability {
    /// The result is certain: the files determine it, or the format leaves no choice.
    Safe,
    /// The fix makes a choice that belongs to the author.
    Unsafe,
}

impl Applicability {
    /// Returns `safe` or `unsafe`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Unsafe => "unsafe",
        }
    }
}

/// A fix of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// Description in the imperative: `write "size_bytes": 12`.
    pub title: String,
    /// States whether the fix may be applied without asking the author.
    pub applicability: Applicability,
    /// Edits of the file with the finding. They do not overlap.
    pub edits: Vec<TextEdit>,
    /// A file that is renamed before the text is edited.
    pub rename: Option<Rename>,
}

/// A renaming of a package's file within its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// Current path.
    pub from: PathBuf,
    /// New path, which must not exist.
    pub to: PathBuf,
}

impl Fix {
    /// Creates a fix that may be applied without asking.
    pub fn safe(title: impl Into<String>, edits: Vec<TextEdit>) -> Self {
        Self::new(Applicability::Safe, title, edits)
    }

    /// Creates a fix that needs the author's consent.
    pub fn needs_consent(title: impl Into<String>, edits: Vec<TextEdit>) -> Self {
        Self::new(Applicability::Unsafe, title, edits)
    }

    /// Also renames a file.
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
