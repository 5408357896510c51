//! The static metadata of a rule: its code, name, default severity and explanation.

use serde::Serialize;

use super::{Applicability, book};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Information; nothing is wrong.
    Note,
    /// Probably wrong, or against a convention.
    Warning,
    /// Certainly wrong.
    Error,
}

impl Severity {
    /// Returns `note`, `warning` or `error`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The static metadata of a rule. Codes and names are stable: they are never reused or renamed.
#[derive(Debug, PartialEq, Eq)]
pub struct RuleMeta {
    /// Code, such as `PKG001`.
    pub code: &'static str,
    /// Name in kebab case.
    pub name: &'static str,
    /// Default severity of the findings.
    pub severity: Severity,
    /// One line that describes a finding of this rule.
    pub summary: &'static str,
    /// The least safe kind of fix of the findings, or `None` if the tool cannot fix them.
    pub fix: Option<Applicability>,
    /// Markdown with the headings *What it checks*, *Why*, *Example*, *Fix*, *What it does not
    /// see*. Lines may begin with the space of a doc comment.
    pub explanation: &'static str,
}

impl RuleMeta {
    /// Returns the URL of the page of the book that explains the rule.
    pub fn page(&self) -> String {
        if self.code.starts_with("PKG") {
            book::page(&format!("rules/{}", self.code))
        } else {
            // The page of `pkgtool compare` explains its findings, CMP001 and so on.
            book::page("compare")
        }
    }

    /// Returns the explanation without the leading spaces of doc comments.
    pub fn explanation_text(&self) -> String {
        let lines = self.explanation.trim_end().lines();
        let unindented = lines.map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
        unindented.collect::<Vec<_>>().join("\n")
    }
}
