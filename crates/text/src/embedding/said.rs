//! A setting of a model together with its source, for error messages.

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// The source, as a phrase for messages.
    pub by: String,
}
