//! Errors of output constraints.

use thiserror::Error;

/// A constraint that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConstraintError {
    /// A field has an invalid type or value.
    #[error("`{field}` must be {expected}, not {found}")]
    Field {
        /// Path of the field in the request.
        field: String,
        /// The expected value.
        expected: String,
        /// The value in the request.
        found: String,
    },
    /// An unsupported keyword of JSON Schema.
    #[error("`{field}` has the unsupported keyword `{keyword}`: {help}")]
    Keyword {
        /// Path of the schema within the request.
        field: String,
        /// The keyword.
        keyword: String,
        /// The remedy.
        help: &'static str,
    },
    /// The schema exceeds a size limit.
    #[error("`{field}` has too many {what}: expected at most {limit}, got {found}")]
    Large {
        /// Path of the schema within the request.
        field: String,
        /// The counted things, in the plural.
        what: &'static str,
        /// The number found. Counting stops once the limit is exceeded.
        found: usize,
        /// The maximum number.
        limit: usize,
    },
    /// The schema contradicts itself, or uses a feature that the library does not support.
    #[error("cannot constrain the output by `{field}`: {reason}")]
    Schema {
        /// Path of the schema within the request.
        field: String,
        /// The library's message.
        reason: String,
    },
    /// A failure during generation: a step takes too long, or the vocabulary lacks a required
    /// token.
    #[error("cannot continue the constrained output: {0}")]
    Step(String),
    /// The vocabulary is invalid for constraints.
    #[error("cannot constrain output with this vocabulary: {0}")]
    Vocabulary(String),
}
