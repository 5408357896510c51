//! A check to be made, and what came of it.

use crate::diagnostic::Diagnostic;
use crate::package::Found;

/// A document to check.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) uri: String,
    pub(super) revision: u64,
    pub(super) found: Found,
    /// The text, or its size if it is too large.
    pub(super) text: Result<Vec<u8>, u64>,
}

/// What a check said of a revision of a document.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) uri: String,
    pub(super) revision: u64,
    pub(super) findings: Vec<Diagnostic>,
    /// What to tell the user if the check itself failed.
    pub(super) failure: Option<String>,
}
