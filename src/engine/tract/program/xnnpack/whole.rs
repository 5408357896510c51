//! Quantised values as whole numbers, for products that have no kernel for bytes.
//!
//! A value on a grid is `q - zero point` here. Products and sums of such numbers are exact in float32 as long
//! as they stay below 2²⁴, so a result differs from XNNPACK's integers only where it does not. Scales come in
//! once, at the end, as XNNPACK has them: rounded to even, then held to the grid.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;

use super::bytes::{range, real, rounded};
use super::{Held, Lowering, constant, grid};
use crate::kernels::bytes::elementwise::Grid;
use crate::tensor::DType;

/// A constant as whole numbers, and a scale for each channel or one for all.
pub(super) struct WholeWeights {
    /// The numbers.
    pub(super) outlet: OutletId,
    /// Their scales.
    pub(super) scales: Vec<f32>,
}

/// A grid of which each step is worth 1.
fn steps(grid: Grid) -> Grid {
    Grid { scale: 1.0, ..grid }
}

impl Lowering<'_> {
    /// A value on a grid as whole numbers.
    pub(super) fn whole(&mut self, id: u32) -> TractResult<Option<(OutletId, Grid)>> {
        let Some((bytes, grid)) = self.bytes(id)? else {
            return Ok(None);
        };
        Ok(Some((real(self.builder, bytes, steps(grid))?, grid)))
    }

    /// A quantised constant as whole numbers, if its scales are those of channels.
    pub(super) fn whole_weights(&mut self, id: u32) -> TractResult<Option<WholeWeights>> {
        let value = self.value(id).clone();
        let Some((tensor, scales)) = constant::read_whole(self.weights, &value)? else {
            return Ok(None);
        };
        let wire = self.builder.constant(tensor, DType::Float32)?;
        Ok(Some(WholeWeights {
            outlet: wire.outlet,
            scales,
        }))
    }

    /// Writes whole numbers that are to be multiplied by a factor, or one for each place of the last
    /// dimension, before they are rounded to the grid of `id`.
    pub(super) fn scaled(
        &mut self,
        id: u32,
        outlet: OutletId,
        factors: &[f32],
        clamp: Option<(f32, f32)>,
    ) -> TractResult<()> {
        let Some(grid) = grid(self.value(id))? else {
            bail!("value {id} is on no grid");
        };
        ensure!(
            factors.iter().all(|factor| factor.is_finite()),
            "a scale that is no number"
        );
        let factors = Arc::new(tensor1(factors));
        let factors = self.builder.constant(factors, DType::Float32)?.outlet;
        let scaled = self.builder.binary(Box::new(math::Mul), outlet, factors)?;
        let to = (steps(grid), range(grid, clamp));
        let bytes = rounded(self.builder, scaled, to)?;
        self.held.insert(id, Held::Bytes(bytes));
        Ok(())
    }
}
