//! Fully connected float32 layers: products of rows and a weight matrix.

use std::fmt;

use super::{Activation, Channels, FloatConvolution};
use crate::window::{Window, WindowPositions};
use crate::{Cpu, Split};

/// A fully connected layer, implemented as a convolution of one-pixel images.
pub struct FloatProduct {
    convolution: FloatConvolution,
}

impl FloatProduct {
    /// Creates a product from `weights` `[out][in]` and `bias` `[out]`. Fails if they do not match
    /// the sizes.
    pub fn new(
        cpu: Cpu,
        inputs: usize,
        outputs: usize,
        weights: &[f32],
        bias: Option<&[f32]>,
        activation: Activation,
    ) -> Result<Self, String> {
        let channels = Channels {
            input: inputs,
            output: outputs,
            groups: 1,
        };
        let convolution =
            FloatConvolution::new(cpu, Window::PIXEL, channels, weights, bias, activation)?;
        Ok(Self { convolution })
    }

    /// Multiplies negative results by a slope, or by one for each output. Fails if there is another number of them.
    pub fn with_slopes(self, slopes: Option<&[f32]>) -> Result<Self, String> {
        let convolution = self.convolution.with_slopes(slopes)?;
        Ok(Self { convolution })
    }

    /// Computes `output` `[rows, out]` from `input` `[rows, in]`.
    ///
    /// `added` has the size of the output and is added before the activation. Fails if a length
    /// does not match.
    pub fn run(
        &self,
        rows: usize,
        input: &[f32],
        added: Option<&[f32]>,
        output: &mut [f32],
        split: Split,
    ) -> Result<(), String> {
        let placed = WindowPositions {
            batch: rows,
            input: [1, 1],
            output: [1, 1],
            before: [0, 0],
        };
        self.convolution.run(&placed, input, added, output, split)
    }

    /// Returns the memory used, in bytes.
    pub fn bytes(&self) -> usize {
        self.convolution.bytes()
    }
}

impl fmt::Debug for FloatProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Product of {:?}", self.convolution)
    }
}
