//! Messages between a rendering worker and its parent process.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::conversation::Conversation;

/// A rendering request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RenderRequest<'r> {
    /// Special tokens that the template may write.
    pub(super) tokens: Cow<'r, Map<String, Value>>,
    /// The conversation to render.
    pub(super) conversation: Cow<'r, Conversation>,
    /// Current time, in seconds since 1970.
    pub(super) now: i64,
    /// Maximum number of template steps.
    pub(super) steps: u64,
}

/// The result of a rendering.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RenderReply {
    /// The rendered text.
    Rendered(String),
    /// The rendering failed.
    Failed {
        /// The kind of failure.
        failure: TemplateFailure,
        /// Line of the template.
        line: Option<usize>,
        /// The error message.
        message: String,
    },
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TemplateFailure {
    /// The template raised an error.
    Raised,
    /// The template cannot be parsed.
    Syntax,
    /// The template took too many steps.
    Steps,
    /// The rendered text is too long.
    Length,
    /// Any other failure.
    Other,
}
