//! What is believed of a model, with what says so: for messages.

/// A value, and what says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said<T> {
    /// The value.
    pub value: T,
    /// What says so.
    pub by: String,
}
