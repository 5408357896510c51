//! Fully connected layers: products of rows and a matrix of weights.

use std::fmt;

use super::{Activation, Channels, Convolution};
use crate::kernels::window::{Placed, Window};
use crate::kernels::{Cpu, Split};

/// A fully connected layer: a convolution of images of one pixel.
pub(crate) struct Product {
    convolution: Convolution,
}

impl Product {
    /// A product by `weights` `[out][in]` with `bias` `[out]`. Fails if they do not fit the sizes.
    pub(crate) fn new(
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
            Convolution::new(cpu, Window::PIXEL, channels, weights, bias, activation)?;
        Ok(Self { convolution })
    }

    /// Computes `output` `[rows, out]` of `input` `[rows, in]`. `added`, as large as the output, is summed to it before
    /// the activation. Fails if a length does not fit.
    pub(crate) fn run(
        &self,
        rows: usize,
        input: &[f32],
        added: Option<&[f32]>,
        output: &mut [f32],
        split: Split,
    ) -> Result<(), String> {
        let placed = Placed {
            batch: rows,
            input: [1, 1],
            output: [1, 1],
            before: [0, 0],
        };
        self.convolution.run(&placed, input, added, output, split)
    }

    /// Memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.convolution.bytes()
    }
}

impl fmt::Debug for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Product of {:?}", self.convolution)
    }
}
