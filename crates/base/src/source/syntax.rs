//! The error of a text that is not valid JSON.

use std::borrow::Cow;

use super::Span;

/// A JSON syntax error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// The problem, without its position.
    pub message: String,
    /// The position.
    pub span: Span,
    /// The remedy.
    pub help: Cow<'static, str>,
}
