//! One open dimension of a model: its limits and its size.
//!
//! Invariant: the declarations of all axes that share a dimension apply together.

use pkgtool_model::Allowed;

/// An open dimension; axes with the same symbol share one.
#[derive(Debug)]
pub(super) struct DimSlot {
    /// The symbol, or `input[axis]`.
    pub(super) label: String,
    /// Largest size.
    pub(super) bound: Option<u64>,
    /// The declared sizes of each axis that shares it.
    pub(super) allowed: Vec<Allowed>,
    /// The first axis that has it.
    pub(super) axis: usize,
    /// True if it is shown as -1 and has an index for `--dim`.
    pub(super) listed: bool,
    /// Its size and the source of the size.
    pub(super) size: Option<(u64, String)>,
    /// True if its size only follows from those of others.
    pub(super) derived: bool,
}

impl DimSlot {
    /// Returns the largest declared size, or else the upper bound, or else 1.
    pub(super) fn default_size(&self) -> u64 {
        let bound = self.bound.unwrap_or(1);
        let most = self.allowed.iter().map(Allowed::largest).min();
        most.map_or(bound, |most| most.min(bound))
    }

    /// Returns the declaration that excludes this size, if any.
    pub(super) fn excluding_declaration(&self, size: u64) -> Option<&Allowed> {
        self.allowed.iter().find(|allowed| !allowed.has(size))
    }
}
