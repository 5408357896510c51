//! Functions of single elements that the library does not have, as elementwise operators of its: it
//! may then move them past changes of layout.

use tract_linalg::routines::Func;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;

/// A function of a float32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pointwise {
    /// Held to a range. NaN stays.
    Clamp {
        /// Least value.
        least: f32,
        /// Largest value.
        most: f32,
    },
    /// The nearest integer of a scale, less its zero point.
    Grid(Grid),
    /// The hyperbolic tangent. The library's own makes a number of NaN.
    Tanh,
    /// `x` where positive, else `alpha (eˣ - 1)`
    Elu {
        /// Factor.
        alpha: f32,
    },
}

/// Numbers that integers stand for: `scale · (q - zero point)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Grid {
    /// Scale.
    pub(super) scale: f32,
    /// Zero point.
    pub(super) zero_point: i32,
    /// Smallest integer.
    pub(super) least: i32,
    /// Largest integer.
    pub(super) most: i32,
}

// No value here is NaN: programs with such scales are refused.
impl Eq for Pointwise {}

impl Grid {
    /// The integers that a number is rounded to, as floats relative to the zero point.
    #[expect(clippy::cast_precision_loss, reason = "small integers")]
    pub(super) fn bounds(self) -> (f32, f32) {
        (
            (self.least - self.zero_point) as f32,
            (self.most - self.zero_point) as f32,
        )
    }

    /// The same grid with no numbers outside of this range.
    #[expect(clippy::cast_possible_truncation, reason = "held to the grid")]
    pub(super) fn within(self, least: f32, most: f32) -> Self {
        let place = |x: f32| {
            let place = (f64::from(x) / f64::from(self.scale)).round_ties_even();
            let place = place.clamp(-1e9, 1e9) as i64 + i64::from(self.zero_point);
            let held = place.clamp(self.least.into(), self.most.into());
            i32::try_from(held).unwrap_or(self.least)
        };
        Self {
            least: place(least),
            most: place(most),
            ..self
        }
    }
}

/// The nearest whole number, ties to even, held to a range of whole numbers below 2²². An addition
/// rounds so, and unlike the processor's own rounding every processor has it for several at once.
pub(super) fn round_to(x: f32, least: f32, most: f32) -> f32 {
    const AWAY: f32 = 12_582_912.0;
    (x.max(least).min(most) + AWAY) - AWAY
}

impl Pointwise {
    /// The operator.
    pub(super) fn op(self) -> ElementWiseOp {
        ElementWiseOp(Box::new(self), None)
    }

    fn apply(self, values: &mut [f32]) -> TractResult<()> {
        match self {
            Self::Tanh => {
                let tanh = Func::Tanh.ew_f32()?;
                let nans: Vec<usize> = (0..values.len())
                    .filter(|at| values[*at].is_nan())
                    .collect();
                tanh.run(values)?;
                for at in nans {
                    values[at] = f32::NAN;
                }
            }
            Self::Clamp { least, most } => {
                for x in values {
                    let raised = if *x < least { least } else { *x };
                    *x = if raised > most { most } else { raised };
                }
            }
            Self::Grid(grid) => {
                let (least, most) = grid.bounds();
                let inverse = grid.scale.recip();
                for x in values {
                    *x = round_to(*x * inverse, least, most);
                }
            }
            Self::Elu { alpha } => {
                for x in values.iter_mut().filter(|x| **x < 0.0) {
                    *x = alpha * x.exp_m1();
                }
            }
        }
        Ok(())
    }
}

impl ElementWiseMiniOp for Pointwise {
    fn name(&self) -> String {
        match self {
            Self::Clamp { .. } => "Clamp",
            Self::Grid(_) => "Grid",
            Self::Tanh => "Tanh",
            Self::Elu { .. } => "Elu",
        }
        .to_owned()
    }

    fn eval_in_place(&self, tensor: &mut Tensor, _: Option<DatumType>) -> TractResult<()> {
        let mut view = tensor.try_as_plain_ram_mut()?;
        self.apply(view.as_slice_mut::<f32>()?)
    }
}
