//! A product of rows of bytes with packed weights: a fully connected layer.

use super::dense::{self, Dense, Part, Rows};
use super::dispatch;
use super::tiles::{CHANNELS, INPUTS};
use super::weights::{Sums, fitting};
use super::{Requantize, Sign};
use crate::kernels::length::check_length;
use crate::kernels::{Cpu, Split};

/// Rows whose inputs are found before weights are read.
const BLOCK: usize = 60;

/// A product: packed weights, and how its sums become bytes.
#[derive(Debug)]
pub(crate) struct Product {
    dense: Dense,
    inputs: usize,
    repeats: usize,
}

/// What a product is made of.
#[derive(Debug, Clone)]
pub(crate) struct Parts<'a> {
    /// Inputs and outputs of a row.
    pub(crate) sizes: [usize; 2],
    /// Weights `[output][input]`.
    pub(crate) weights: &'a [i8],
    /// Zero points of the weights: none where all are 0, one, or one for each output.
    pub(crate) weight_zeros: &'a [i32],
    /// What is added to the sums of each output, in their unit.
    pub(crate) bias: Option<&'a [i32]>,
    /// The zero point of the input.
    pub(crate) input_zero: i32,
    /// What input bytes stand for.
    pub(crate) sign_in: Sign,
    /// What output bytes stand for.
    pub(crate) sign_out: Sign,
    /// How sums become bytes.
    pub(crate) requantize: &'a Requantize,
}

impl Product {
    /// Packs weights for these instructions.
    pub(crate) fn new(cpu: Cpu, parts: &Parts<'_>) -> Result<Self, String> {
        let [inputs, outputs] = parts.sizes;
        if inputs == 0 || outputs == 0 {
            return Err(format!(
                "a product of {inputs} inputs and {outputs} outputs"
            ));
        }
        check_length("the weights", parts.weights.len(), &[outputs, inputs])?;
        let (limits, factors) = parts.requantize.check(parts.sign_out, outputs)?;
        let sums = Sums {
            cpu,
            sign: parts.sign_in,
            zero: parts.input_zero,
        };
        let repeated = fitting(parts.weights, parts.weight_zeros, outputs)?;
        let bias = sums.bias(&repeated, parts.bias, outputs)?;
        let repeats = repeated.len() / parts.weights.len();
        let dense = Dense::new(
            cpu,
            &dense::Parts {
                sizes: [1, outputs, repeats, inputs],
                weights: &repeated,
                bias: &bias,
                factors: &factors,
                limits,
                flip: sums.flip(),
            },
        );
        Ok(Self {
            dense,
            inputs,
            repeats,
        })
    }

    /// Bytes of the packed weights.
    pub(crate) fn bytes(&self) -> usize {
        self.dense.bytes()
    }

    /// Computes rows of bytes.
    pub(crate) fn run(&self, input: &[u8], output: &mut [u8], split: Split) -> Result<(), String> {
        let dense = &self.dense;
        let (inputs, outputs) = (self.inputs, dense.outputs);
        let rows = output.len() / outputs;
        check_length("the output", output.len(), &[rows, outputs])?;
        check_length("the input", input.len(), &[rows, inputs])?;
        // The last row's last inputs are read as four: rows are as long as that.
        let length = inputs.next_multiple_of(INPUTS);
        let mut longer = Vec::new();
        let input = if length == inputs {
            input
        } else {
            longer.resize(rows * length, 0);
            let pairs = longer
                .chunks_exact_mut(length)
                .zip(input.chunks_exact(inputs));
            pairs.for_each(|(to, from)| to[..inputs].copy_from_slice(from));
            &longer
        };
        let slice = |row: usize| input[row * length..(row + 1) * length].as_chunks().0;
        if rows == 1 {
            let together = dense.panel_lines();
            let columns = (together * CHANNELS).min(outputs);
            let rows = Rows::new(dense, 1, |_, _| slice(0));
            let cost = self.repeats * length * columns;
            split.rows(output, columns, cost, |panel, output| {
                let lines = panel * together;
                let part = Part {
                    group: 0,
                    lines: lines..lines + output.len().div_ceil(CHANNELS),
                    stride: outputs,
                    column: 0,
                };
                dispatch::block(dense, &part, &rows, output);
            });
            return Ok(());
        }
        split.rows(
            output,
            outputs,
            self.repeats * length * outputs,
            |first, output| {
                for (block, output) in output.chunks_mut(BLOCK * outputs).enumerate() {
                    let first = first + block * BLOCK;
                    let count = output.len() / outputs;
                    let rows = Rows::new(dense, count, |row, _| slice(first + row));
                    let part = Part {
                        group: 0,
                        lines: 0..dense.group_lines(),
                        stride: outputs,
                        column: 0,
                    };
                    dispatch::block(dense, &part, &rows, output);
                }
            },
        );
        Ok(())
    }
}
