//! What the tiles of a run share.

use super::panels::{Bits, Lanes, Panels, Sizes};
use super::quantize::Quantized;

/// What is multiplied.
pub(super) struct Work<'w> {
    /// How wide weights are.
    pub(super) bits: Bits,
    /// Their sizes.
    pub(super) sizes: Sizes,
    /// The weights.
    pub(super) panels: &'w Panels,
    /// How many rows.
    pub(super) rows: usize,
    /// The rows.
    pub(super) inputs: Inputs<'w>,
}

/// Rows that are multiplied.
#[derive(Clone, Copy)]
pub(super) enum Inputs<'w> {
    /// Rounded to steps.
    Rounded(&'w Quantized),
    /// As they are, with what that takes.
    Real(&'w Reals<'w>),
}

/// Rows of real numbers, in groups of a multiple of eight.
pub(super) struct Reals<'w> {
    /// The numbers.
    pub(super) values: &'w [f32],
    /// Sums of the numbers of each group, a row after the other.
    pub(super) sums: Vec<f32>,
    /// What is no weight's distance from 0, of each panel, of each group; the offset of the bits if there
    /// are none.
    pub(super) zeros: &'w [Lanes<u8>],
}
