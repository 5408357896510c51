//! Why a text is not JSON.

use std::borrow::Cow;

use super::Span;

/// Why a text is not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// What is wrong, without the place.
    pub message: String,
    /// Where.
    pub span: Span,
    /// What to do.
    pub help: Cow<'static, str>,
}
