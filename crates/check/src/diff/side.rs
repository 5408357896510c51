//! The two sides of a method: inputs and outputs.

/// The inputs or the outputs of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureSide {
    /// The inputs.
    Input,
    /// The outputs.
    Output,
}
