//! Functions of single elements that tract lacks, as elementwise operators of tract.
//!
//! As elementwise operators, tract can move them past layout changes.

use tract_linalg::routines::Func;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;

/// A function of a float32 number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pointwise {
    /// Clamps to a range. NaN stays NaN.
    Clamp {
        /// Least value.
        least: f32,
        /// Largest value.
        most: f32,
    },
    /// The hyperbolic tangent. tract's own function returns a number for NaN.
    Tanh,
    /// `x` if positive, else `alpha (eˣ - 1)`
    Elu {
        /// Factor.
        alpha: f32,
    },
}

// The parameters are never NaN: programs with such parameters are rejected.
impl Eq for Pointwise {}

impl Pointwise {
    /// Returns the operator.
    pub(crate) fn op(self) -> ElementWiseOp {
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
