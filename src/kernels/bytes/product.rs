//! A product of rows of bytes with packed weights: a fully connected layer.

use super::dense::{self, Dense, Part, Rows};
use super::dispatch;
use super::tiles::{CHANNELS, INPUTS, Target};
use super::weights::{Sums, fitting};
use super::{Limits, Requantize, Sign, check_length};
use crate::kernels::{Cpu, Split};

/// Rows whose inputs are found before weights are read.
const BLOCK: usize = 60;

/// A product: packed weights, and what becomes of its sums.
#[derive(Debug)]
pub(crate) struct Product {
    dense: Dense,
    inputs: usize,
    repeats: usize,
    requantized: bool,
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
    /// What output bytes stand for, and how sums become bytes; sums stay where there is none.
    pub(crate) requantize: Option<(Sign, &'a Requantize)>,
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
        let (limits, factors) = match parts.requantize {
            Some((sign, requantize)) => requantize.check(sign, outputs)?,
            None => (Limits::NONE, vec![1.0; outputs]),
        };
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
            requantized: parts.requantize.is_some(),
        })
    }

    /// Computes rows of bytes. An error if the product leaves sums.
    pub(crate) fn run(&self, input: &[u8], output: &mut [u8], split: Split) -> Result<(), String> {
        if !self.requantized {
            return Err("this product leaves 32-bit sums".to_owned());
        }
        self.rows(input, output, split, |bytes| Target::Bytes(bytes))
    }

    /// Computes rows of sums. An error if the product is to give bytes.
    pub(crate) fn sums(
        &self,
        input: &[u8],
        output: &mut [i32],
        split: Split,
    ) -> Result<(), String> {
        if self.requantized {
            return Err("this product gives bytes".to_owned());
        }
        self.rows(input, output, split, |sums| Target::Sums(sums))
    }

    /// Bytes of the packed weights.
    pub(crate) fn bytes(&self) -> usize {
        self.dense.bytes()
    }

    fn rows<T: Send>(
        &self,
        input: &[u8],
        output: &mut [T],
        split: Split,
        target: impl Fn(&mut [T]) -> Target<'_> + Sync,
    ) -> Result<(), String> {
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
                dispatch::block(dense, &part, &rows, &mut target(output));
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
                    dispatch::block(dense, &part, &rows, &mut target(output));
                }
            },
        );
        Ok(())
    }
}
