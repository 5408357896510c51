//! What a process that renders and its parent say to each other.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::conversation::Conversation;

/// A rendering.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Request<'r> {
    /// What the template may write.
    pub(super) tokens: Cow<'r, Map<String, Value>>,
    /// What is to be rendered.
    pub(super) conversation: Cow<'r, Conversation>,
    /// Seconds since 1970.
    pub(super) now: i64,
    /// Most steps of the template.
    pub(super) steps: u64,
}

/// Its outcome.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The text.
    Rendered(String),
    /// There is none.
    Failed {
        /// What kind of failure.
        failure: Failure,
        /// Line of the template.
        line: Option<usize>,
        /// What happened.
        message: String,
    },
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Failure {
    /// The template refused.
    Raised,
    /// The template cannot be read.
    Syntax,
    /// It took too many steps.
    Steps,
    /// Its text is too long.
    Length,
    /// Anything else it did.
    Other,
}
