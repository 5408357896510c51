//! Quantised values as whole numbers: what integer arithmetic gives, computed exactly in float32.
//!
//! A value on a grid is held as `q - zero point`. Products and sums of such numbers are exact in
//! float32 as long as they stay below 2²⁴, so a result differs from XNNPACK's integers only where it
//! does not. Scales come in once, at the end, as XNNPACK has them: rounded to even, then held to the
//! grid.

use tract_onnx::tract_core::broadcast::multi_broadcast;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;
use tract_onnx::tract_core::ops::nn::Reducer;

use super::super::builder::map_f32;
use super::super::operators::{broadcast_strides, places};
use super::super::pointwise::{Grid, round_to};
use super::{Held, Lowering, constant, grid};
use crate::model::executorch::xnnpack::BinaryKind;
use crate::tensor::DType;

/// A constant as whole numbers, and a scale for each channel or one for all.
pub(super) struct WholeWeights {
    /// The numbers.
    pub(super) outlet: OutletId,
    /// Their scales.
    pub(super) scales: Vec<f32>,
}

impl Lowering<'_> {
    /// A value on a grid as whole numbers.
    pub(super) fn whole(&mut self, id: u32) -> TractResult<Option<(OutletId, Grid)>> {
        let Some(Held::Whole(outlet)) = self.held.get(&id) else {
            return Ok(None);
        };
        let outlet = *outlet;
        Ok(grid(self.value(id))?.map(|grid| (outlet, grid)))
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
        factors: Vec<f32>,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<()> {
        let Some(grid) = grid(self.value(id))? else {
            bail!("value {id} is on no grid");
        };
        let grid = match super::limited(clamp) {
            Some((least, most)) => grid.within(least, most),
            None => grid,
        };
        ensure!(
            factors.iter().all(|factor| factor.is_finite()),
            "a scale that is no number"
        );
        let shape = self.builder.shape(outlet)?;
        let (least, most) = grid.bounds();
        let wire = self.builder.kernel(
            "Requantize",
            DType::Float32,
            &shape,
            &[outlet],
            move |inputs| {
                let mut output = Tensor::clone(&inputs[0]);
                let mut view = output.try_as_plain_ram_mut()?;
                let values = view.as_slice_mut::<f32>()?;
                if let [factor] = factors.as_slice() {
                    for x in values {
                        *x = round_to(*x * factor, least, most);
                    }
                    return Ok(output);
                }
                for row in values.chunks_exact_mut(factors.len()) {
                    for (x, factor) in row.iter_mut().zip(&factors) {
                        *x = round_to(*x * factor, least, most);
                    }
                }
                Ok(output)
            },
        )?;
        self.held.insert(id, Held::Whole(wire.outlet));
        Ok(())
    }

    /// A sum, difference or product of values on grids, whose result is on one; whether it was one.
    pub(super) fn whole_binary(
        &mut self,
        kind: BinaryKind,
        [a, b, output]: [u32; 3],
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let (Some((left, of_left)), Some((right, of_right)), Some(to)) =
            (self.whole(a)?, self.whole(b)?, grid(self.value(output))?)
        else {
            return Ok(false);
        };
        match kind {
            BinaryKind::Multiply => {
                let product = self.builder.binary(Box::new(math::Mul), left, right)?;
                let factor = of_left.scale * of_right.scale / to.scale;
                self.scaled(output, product, vec![factor], clamp)?;
            }
            BinaryKind::Add | BinaryKind::Subtract => {
                let sign = if kind == BinaryKind::Subtract {
                    -1.0
                } else {
                    1.0
                };
                let factors = [of_left.scale / to.scale, sign * of_right.scale / to.scale];
                let Some(sum) = FixedSum::new(factors) else {
                    return Ok(false);
                };
                let to = match super::limited(clamp) {
                    Some((least, most)) => to.within(least, most),
                    None => to,
                };
                let outlet = self.fixed_sum(sum, [left, right], to)?;
                self.held.insert(output, Held::Whole(outlet));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn fixed_sum(
        &mut self,
        sum: FixedSum,
        inputs: [OutletId; 2],
        to: Grid,
    ) -> TractResult<OutletId> {
        let shape = self.builder.broadcast_shape(&inputs)?;
        let inputs = self.builder.same_rank(inputs)?;
        let (least, most) = to.bounds();
        let wire =
            self.builder
                .kernel("FixedSum", DType::Float32, &shape, &inputs, move |inputs| {
                    let (a, b) = (&inputs[0], &inputs[1]);
                    let (left, right) = (a.try_as_plain_ram()?, b.try_as_plain_ram()?);
                    let (left, right) = (left.as_slice::<f32>()?, right.as_slice::<f32>()?);
                    if a.shape() == b.shape() {
                        let pairs = left.iter().zip(right);
                        let sums: Vec<f32> =
                            pairs.map(|(a, b)| sum.of(*a, *b, least, most)).collect();
                        return Tensor::from_shape(a.shape(), &sums);
                    }
                    let shape = multi_broadcast(&[a.shape(), b.shape()])?;
                    let of_a = places(&shape, &broadcast_strides(a.shape(), &shape));
                    let of_b = places(&shape, &broadcast_strides(b.shape(), &shape));
                    let pairs = of_a.into_iter().zip(of_b);
                    let sums: Vec<f32> = pairs
                        .map(|(a, b)| sum.of(left[a], right[b], least, most))
                        .collect();
                    Tensor::from_shape(&shape, &sums)
                })?;
        Ok(wire.outlet)
    }

    /// The same value on the same grid, held to a range; whether it was one.
    pub(super) fn whole_clamp(
        &mut self,
        [input, output]: [u32; 2],
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let (Some((outlet, from)), Some(to)) = (self.whole(input)?, grid(self.value(output))?)
        else {
            return Ok(false);
        };
        if from != to {
            return Ok(false);
        }
        let mut outlet = outlet;
        if let Some((least, most)) = super::limited(clamp) {
            let (least, most) = to.within(least, most).bounds();
            outlet = self.clamp(outlet, least, most)?;
        }
        self.held.insert(output, Held::Whole(outlet));
        Ok(true)
    }

    /// The mean of each image's channels, where both are on grids; whether it was one.
    pub(super) fn whole_average(
        &mut self,
        [input, output]: [u32; 2],
        keep: bool,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let (Some((outlet, from)), Some(to)) = (self.whole(input)?, grid(self.value(output))?)
        else {
            return Ok(false);
        };
        let shape = self.builder.shape(outlet)?;
        ensure!(shape.len() == 4, "an image of {} dimensions", shape.len());
        let Ok(count) = (shape[1].clone() * &shape[2]).reduce().to_usize() else {
            return Ok(false);
        };
        let sum = self.builder.reduce(Reducer::Sum, outlet, &[1, 2], keep)?;
        #[expect(clippy::cast_precision_loss, reason = "pixels of an image")]
        let factor = from.scale / (to.scale * count as f32);
        // Half a step is rounded to even after the zero point is added, not before.
        let rank = self.builder.rank(sum)?;
        let factor = self.builder.float(factor, rank)?;
        let mean = self.builder.binary(Box::new(math::Mul), sum, factor)?;
        let to = match super::limited(clamp) {
            Some((least, most)) => to.within(least, most),
            None => to,
        };
        let shape = self.builder.shape(mean)?;
        let (least, most) = to.bounds();
        #[expect(clippy::cast_precision_loss, reason = "a small integer")]
        let zero = to.zero_point as f32;
        let wire = self
            .builder
            .kernel("Mean", DType::Float32, &shape, &[mean], move |inputs| {
                map_f32(&inputs[0], |x| {
                    round_to(x + zero, least + zero, most + zero) - zero
                })
            })?;
        self.held.insert(output, Held::Whole(wire.outlet));
        Ok(true)
    }
}

/// A sum as XNNPACK computes it: factors with 21 bits, added up as integers, half a step rounded up.
#[derive(Debug, Clone, Copy)]
struct FixedSum {
    a: i32,
    b: i32,
    shift: u32,
}

impl FixedSum {
    /// `None` where XNNPACK takes no such factors.
    #[expect(clippy::cast_possible_truncation, reason = "below 2²¹")]
    fn new([a, b]: [f32; 2]) -> Option<Self> {
        let largest = a.abs().max(b.abs());
        if !(2.0_f32.powi(-10)..2.0_f32.powi(8)).contains(&largest) {
            return None;
        }
        let exponent = i32::try_from(largest.to_bits() >> 23).ok()? - 127;
        let shift = u32::try_from(20 - exponent).ok()?;
        let fixed = |factor: f32| {
            let scaled = f64::from(factor) * f64::from(1_u32 << shift);
            scaled.round_ties_even() as i32
        };
        Some(Self {
            a: fixed(a),
            b: fixed(b),
            shift,
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "whole numbers of nine bits"
    )]
    fn of(self, a: f32, b: f32, least: f32, most: f32) -> f32 {
        let sum = (a as i32) * self.a + (b as i32) * self.b + (1 << (self.shift - 1));
        ((sum >> self.shift) as f32).max(least).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_rounded_half_up() {
        let sum = FixedSum::new([0.5, 0.5]).expect("ordinary factors");
        let of = |a, b| sum.of(a, b, -128.0, 127.0);
        assert_eq!([of(1.0, 0.0), of(-1.0, 0.0), of(3.0, 2.0)], [1.0, 0.0, 3.0]);
        assert_eq!(of(127.0, 300.0), 127.0);
        assert!(FixedSum::new([300.0, 1.0]).is_none());
    }
}
