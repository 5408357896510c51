//! Quantised values as integers stored in float32, for products without a kernel for bytes.
//!
//! A quantised value is `q - zero_point` here. Products and sums of such integers are exact in
//! float32 while they stay below 2²⁴. Results can differ from XNNPACK's integers only beyond that.
//! As in XNNPACK, scales are applied once at the end: the result is rounded to even, then clamped
//! to the grid.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;

use super::bytes::{clamp_range, real, rounded};
use super::{Held, XnnpackLowering, constant, grid};
use crate::tensor::DType;
use pkgtool_kernels::bytes::elementwise::Grid;

/// A constant as integers, with one scale or one for each channel.
pub(super) struct IntegerWeights {
    /// The integers.
    pub(super) outlet: OutletId,
    /// The scales.
    pub(super) scales: Vec<f32>,
}

/// Returns the grid with scale 1.
fn unit_grid(grid: Grid) -> Grid {
    Grid { scale: 1.0, ..grid }
}

impl XnnpackLowering<'_> {
    /// Returns a quantised value as integers.
    pub(super) fn as_integers(&mut self, id: u32) -> TractResult<Option<(OutletId, Grid)>> {
        let Some((bytes, grid)) = self.bytes(id)? else {
            return Ok(None);
        };
        Ok(Some((real(self.builder, bytes, unit_grid(grid))?, grid)))
    }

    /// Returns a quantised constant as integers, if its scales are by channel.
    pub(super) fn weights_as_integers(&mut self, id: u32) -> TractResult<Option<IntegerWeights>> {
        let value = self.value(id).clone();
        let Some((tensor, scales)) = constant::read_integers(self.weights, &value)? else {
            return Ok(None);
        };
        let wire = self.builder.constant(tensor, DType::Float32)?;
        Ok(Some(IntegerWeights {
            outlet: wire.outlet,
            scales,
        }))
    }

    /// Multiplies integers by one factor, or one for each position of the last dimension, and
    /// writes them rounded to the grid of `id`.
    pub(super) fn write_scaled(
        &mut self,
        id: u32,
        outlet: OutletId,
        factors: &[f32],
        clamp: Option<(f32, f32)>,
    ) -> TractResult<()> {
        let Some(grid) = grid(self.value(id))? else {
            bail!("value {id} is not quantised");
        };
        ensure!(
            factors.iter().all(|factor| factor.is_finite()),
            "a scale is not finite"
        );
        let factors = Arc::new(tensor1(factors));
        let factors = self.builder.constant(factors, DType::Float32)?.outlet;
        let scaled = self.builder.binary(Box::new(math::Mul), outlet, factors)?;
        let to = (unit_grid(grid), clamp_range(grid, clamp));
        let bytes = rounded(self.builder, scaled, to)?;
        self.held.insert(id, Held::Bytes(bytes));
        Ok(())
    }
}
