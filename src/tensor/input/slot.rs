//! One dimension that a model leaves open: what bounds it, and the size it got.
//!
//! Invariant: what several axes declare of a shared dimension holds all together.

use crate::model::Allowed;

/// An open dimension; axes with the same symbol share one.
#[derive(Debug)]
pub(super) struct Slot {
    /// The symbol, or `input[axis]`.
    pub(super) label: String,
    /// Largest size.
    pub(super) bound: Option<u64>,
    /// What each axis that shares it declares of its sizes.
    pub(super) allowed: Vec<Allowed>,
    /// The axis that it is of, the first of them.
    pub(super) axis: usize,
    /// Whether it is shown as -1 and has a number for `--dim`.
    pub(super) listed: bool,
    /// Its size and what gave it.
    pub(super) size: Option<(u64, String)>,
    /// Whether its size only follows from those of others.
    pub(super) derived: bool,
}

impl Slot {
    /// The largest size that is declared, else the upper bound, else 1.
    pub(super) fn default_size(&self) -> u64 {
        let bound = self.bound.unwrap_or(1);
        let most = self.allowed.iter().map(Allowed::largest).min();
        most.map_or(bound, |most| most.min(bound))
    }

    /// What is declared of it, if this is none of its sizes.
    pub(super) fn refusal(&self, size: u64) -> Option<&Allowed> {
        self.allowed.iter().find(|allowed| !allowed.has(size))
    }
}
