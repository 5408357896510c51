//! Convolutions, products, attention and normalisation in float32.
//!
//! [`FloatConvolution`] and [`FloatProduct`] choose their kernel when they are created. Kernels are written
//! once, as macros over the operations of [`registers`], and compiled for each instruction set.

mod activate;
mod aligned;
mod attention;
mod convolution;
mod depthwise;
mod gather;
mod half;
mod matrix;
mod normal;
mod packed;
mod pool;
mod product;
mod registers;
mod scale;
mod shape;
mod single;
mod steps;
mod sum;
#[cfg(test)]
mod tests;
mod tile;

pub use attention::{Attention, HeadRows, VisibleKeys};
pub use convolution::FloatConvolution;
pub use normal::{Moments, normalise_rows};
pub use pool::largest_of_windows;
pub use product::FloatProduct;
pub use scale::scale_rows;
pub use steps::{BinaryOperation, ChainStep, InPlace, StepChain, StepOperand};
pub use sum::sum_of_rows;

pub use crate::window::Channels;

use crate::Cpu;

/// A function applied to each number of a result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// The identity.
    None,
    /// Clamps to a range.
    Clamp {
        /// Minimum.
        least: f32,
        /// Maximum.
        most: f32,
    },
    /// `x` times `x + 3`, clamped to the range 0 to 6 and divided by 6.
    HardSwish,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `x` times its sigmoid.
    Silu,
}

impl Activation {
    /// Returns the range to which a kernel clamps its results, and the activation to apply
    /// afterwards.
    const fn parts(self) -> ([f32; 2], Self) {
        match self {
            Self::Clamp { least, most } => ([least, most], Self::None),
            other => ([f32::NEG_INFINITY, f32::INFINITY], other),
        }
    }
}

impl Channels {
    /// Fails unless both numbers of channels are divisible by the groups, and input channels exist.
    fn check(&self) -> Result<(), String> {
        let groups = self.groups;
        let even =
            groups > 0 && self.input.is_multiple_of(groups) && self.output.is_multiple_of(groups);
        if even && self.input > 0 {
            return Ok(());
        }
        Err(format!(
            "invalid {self:?}: input and output channels must divide into one group or more"
        ))
    }

    /// Returns the number of input channels of a group.
    const fn inner(&self) -> usize {
        self.input / self.groups
    }

    /// Returns the number of output channels of a group.
    const fn outer(&self) -> usize {
        self.output / self.groups
    }
}

/// Applies an activation in place.
pub(crate) fn activate(cpu: Cpu, activation: Activation, values: &mut [f32]) {
    activate::in_place(cpu, activation, values);
}

/// Fails unless `found` equals `wanted`.
fn check_count(name: &str, found: usize, wanted: usize) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    Err(format!(
        "wrong number of {name}: expected {wanted}, got {found}"
    ))
}
