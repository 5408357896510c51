//! A job of the checker thread, and its outcome.

use pkgtool_base::diagnostic::Diagnostic;
use pkgtool_base::package::FoundFile;

/// A document to check.
#[derive(Debug)]
pub(super) struct CheckJob {
    pub(super) uri: String,
    pub(super) revision: u64,
    pub(super) found: FoundFile,
    /// The text, or its size in bytes if it is too large.
    pub(super) text: Result<Vec<u8>, u64>,
}

/// The outcome of checking a revision of a document.
#[derive(Debug)]
pub(super) struct CheckOutcome {
    pub(super) uri: String,
    pub(super) revision: u64,
    pub(super) findings: Vec<Diagnostic>,
    /// A message for the user if the check itself failed.
    pub(super) failure: Option<String>,
}
