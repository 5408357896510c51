//! What can be wrong with a grammar that a client asks for.

use thiserror::Error;

/// A constraint that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConstraintError {
    /// A field has the wrong type or value.
    #[error("`{field}` must be {expected}, not {found}")]
    Field {
        /// Its path in the request.
        field: String,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A keyword of JSON Schema that output cannot be held to.
    #[error("`{field}` has the keyword `{keyword}`, which output cannot be constrained by: {help}")]
    Keyword {
        /// Path of the schema within the request.
        field: String,
        /// The keyword.
        keyword: String,
        /// What to do.
        help: &'static str,
    },
    /// More than is worked through for one request.
    #[error("`{field}` has {found} {what}; at most {limit} are taken")]
    Large {
        /// Path of the schema within the request.
        field: String,
        /// What there are too many of.
        what: &'static str,
        /// How many there are, or at which the count ended.
        found: usize,
        /// How many may be.
        limit: usize,
    },
    /// The schema contradicts itself, or asks for what the library has no code for.
    #[error("output cannot be constrained by `{field}`: {reason}")]
    Schema {
        /// Path of the schema within the request.
        field: String,
        /// The library's words.
        reason: String,
    },
    /// While generating: a step that takes too long, or a vocabulary without what is needed.
    #[error("the constraint cannot be followed any further: {0}")]
    Step(String),
    /// The vocabulary cannot be constrained.
    #[error("the vocabulary cannot be constrained: {0}")]
    Vocabulary(String),
}
