//! What is fixed about a rule: its code, name, default severity and explanation.

use serde::Serialize;

use super::{Applicability, book};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Probably wrong, or against a convention.
    Warning,
    /// Wrong.
    Error,
}

impl Severity {
    /// `note`, `warning` or `error`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The fixed part of a rule. Codes and names are a contract: never reused, never renamed.
#[derive(Debug, PartialEq, Eq)]
pub struct RuleMeta {
    /// `PKG001` and so on.
    pub code: &'static str,
    /// Kebab-case name.
    pub name: &'static str,
    /// The severity its findings have unless they say otherwise.
    pub severity: Severity,
    /// One line: what a finding of this rule means.
    pub summary: &'static str,
    /// Whether findings of this rule can be mended by the tool, and the boldest way in which they are.
    pub fix: Option<Applicability>,
    /// Markdown under the headings *What it checks*, *Why*, *Example*, *Fix*, *What it does
    /// not see*. Lines may begin with the space that a doc comment leaves.
    pub explanation: &'static str,
}

impl RuleMeta {
    /// Returns the URL of the page of the book that explains the rule.
    pub fn page(&self) -> String {
        match self.code.starts_with("PKG") {
            true => book::page(&format!("rules/{}", self.code)),
            // The page of `pkgtool compare` explains its findings, CMP001 and so on.
            false => book::page("compare"),
        }
    }

    /// The explanation without the margin that doc comments leave.
    pub fn explanation_text(&self) -> String {
        let lines = self.explanation.trim_end().lines();
        let unindented = lines.map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
        unindented.collect::<Vec<_>>().join("\n")
    }
}
