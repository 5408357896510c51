//! The two sides of a method.

/// Which side of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// What it takes.
    Input,
    /// What it gives.
    Output,
}
