//! The data that all tiles of a run share.

use super::panels::{Bits, MatrixSizes, PanelLanes, RowPanels};
use super::quantize::Quantized;

/// A product to compute.
pub(super) struct RowWork<'w> {
    /// Width of the weights.
    pub(super) bits: Bits,
    /// Sizes of the weights.
    pub(super) sizes: MatrixSizes,
    /// The packed weights.
    pub(super) panels: &'w RowPanels,
    /// Number of rows.
    pub(super) rows: usize,
    /// The rows.
    pub(super) inputs: Inputs<'w>,
}

/// Rows to multiply.
#[derive(Clone, Copy)]
pub(super) enum Inputs<'w> {
    /// Quantised rows.
    Rounded(&'w Quantized),
    /// Unmodified float32 rows.
    Real(&'w Reals<'w>),
}

/// Rows of real numbers, in groups of a multiple of eight.
pub(super) struct Reals<'w> {
    /// The numbers.
    pub(super) values: &'w [f32],
    /// Sums of the numbers of each group, row after row.
    pub(super) sums: Vec<f32>,
    /// Zero points of the weights for each panel and group; by default the offset of the bits.
    pub(super) zeros: &'w [PanelLanes<u8>],
}
