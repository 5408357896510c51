//! Quantised fully connected layers: products of byte rows with packed weights.

use super::dense::{self, Dense, DenseRows, Part};
use super::dispatch;
use super::tiles::{CHANNELS, TileTarget};
use super::weights::{SumInputs, fit_to_bytes, zero_of};
use super::{ByteLimits, Requantize, Sign};
use crate::length::check_length;
use crate::{Cpu, Split};

/// Number of rows whose inputs are located before weights are read.
const ROWS_PER_BLOCK: usize = 60;

/// A product: packed weights, and the conversion of sums to bytes.
#[derive(Debug)]
pub struct ByteProduct(PackedBytes);

/// Parameters of a product.
#[derive(Debug, Clone)]
pub struct Parts<'a> {
    /// Number of inputs and outputs of a row.
    pub sizes: [usize; 2],
    /// Weights `[output][input]`.
    pub weights: &'a [i8],
    /// Zero points of the weights: empty if all are 0, one, or one for each output.
    pub weight_zeros: &'a [i32],
    /// Added to the sums of each output, in their unit.
    pub bias: Option<&'a [i32]>,
    /// Zero point of the input.
    pub input_zero: i32,
    /// Sign of input bytes.
    pub sign_in: Sign,
    /// Sign of output bytes.
    pub sign_out: Sign,
    /// Conversion of sums to bytes.
    pub requantize: &'a Requantize,
}

impl ByteProduct {
    /// Packs weights for this instruction set.
    pub fn new(cpu: Cpu, parts: &Parts<'_>) -> Result<Self, String> {
        let [_, outputs] = parts.sizes;
        check_weights(parts.sizes, parts.weights)?;
        let (limits, factors) = parts.requantize.check(parts.sign_out, outputs)?;
        let sums = SumInputs {
            sign: parts.sign_in,
            zero: parts.input_zero,
            flip: dense::flips(cpu, parts.sign_in),
        };
        let weights = fit_to_bytes(parts.weights, parts.weight_zeros, outputs)?;
        let bias = sums.bias(&weights, parts.bias, outputs)?;
        let packed = PackedBytes::new(
            cpu,
            parts.sizes,
            &weights,
            &bias,
            &factors,
            limits,
            parts.sign_in,
        );
        Ok(Self(packed))
    }

    /// Returns the size of the packed weights, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.dense.bytes()
    }

    /// Computes rows of bytes.
    pub fn run(&self, input: &[u8], output: &mut [u8], split: Split) -> Result<(), String> {
        self.0
            .rows(input, output, split, |bytes| TileTarget::Bytes(bytes))
    }
}

/// A product whose sums stay 32-bit integers, for inputs whose zero point is known only at run
/// time.
#[derive(Debug)]
pub struct SumProduct {
    packed: PackedBytes,
    /// Sum of each output's weights, minus their zero points.
    totals: Vec<i32>,
}

impl SumProduct {
    /// Packs weights `[output][input]` for inputs of this sign. Zero points are as in `DenseParams`.
    pub fn new(
        cpu: Cpu,
        sizes: [usize; 2],
        weights: &[i8],
        zeros: &[i32],
        sign: Sign,
    ) -> Result<Self, String> {
        check_weights(sizes, weights)?;
        let [_, outputs] = sizes;
        let weights = fit_to_bytes(weights, zeros, outputs)?;
        let of_outputs = weights.chunks_exact(weights.len() / outputs);
        let totals = of_outputs.map(|weights| weights.iter().map(|it| i32::from(*it)).sum());
        let totals = totals.collect();
        let (bias, factors) = (vec![0; outputs], vec![1.0; outputs]);
        let packed = PackedBytes::new(
            cpu,
            sizes,
            &weights,
            &bias,
            &factors,
            ByteLimits::NONE,
            sign,
        );
        Ok(Self { packed, totals })
    }

    /// Returns the size of the packed weights, in bytes.
    pub fn bytes(&self) -> usize {
        self.packed.dense.bytes() + size_of_val(self.totals.as_slice())
    }

    /// Computes rows of sums, for inputs with this zero point.
    pub fn run(
        &self,
        zero: i32,
        input: &[u8],
        output: &mut [i32],
        split: Split,
    ) -> Result<(), String> {
        self.packed.sign.check("zero point of the input", zero)?;
        let dense = &self.packed.dense;
        let zero = zero_of(self.packed.sign, dense.flip, zero);
        self.packed
            .rows(input, output, split, |sums| TileTarget::Sums(sums))?;
        if zero != 0 {
            let outputs = dense.outputs;
            split.rows(output, outputs, outputs, |_, output| {
                for row in output.chunks_exact_mut(outputs) {
                    for (sum, total) in row.iter_mut().zip(&self.totals) {
                        *sum = sum.wrapping_sub(total.wrapping_mul(zero));
                    }
                }
            });
        }
        Ok(())
    }
}

/// Fails if the number of weights does not match these input and output sizes.
fn check_weights([inputs, outputs]: [usize; 2], weights: &[i8]) -> Result<(), String> {
    if inputs == 0 || outputs == 0 {
        return Err(format!(
            "invalid sizes of a product: {inputs} inputs and {outputs} outputs"
        ));
    }
    check_length("the weights", weights.len(), &[outputs, inputs])
}

/// Packed weights, and the number of inputs in a row.
#[derive(Debug)]
struct PackedBytes {
    dense: Dense,
    sign: Sign,
    inputs: usize,
    /// Number of times that rows are read; see [`fit_to_bytes`].
    repeats: usize,
}

impl PackedBytes {
    /// Packs weights, repeated where necessary.
    fn new(
        cpu: Cpu,
        [inputs, outputs]: [usize; 2],
        weights: &[i8],
        bias: &[i32],
        factors: &[f32],
        limits: ByteLimits,
        sign: Sign,
    ) -> Self {
        let repeats = weights.len() / (inputs * outputs);
        let parts = dense::DenseParams {
            sizes: [1, outputs, repeats, inputs],
            weights,
            bias,
            factors,
            limits,
            flip: dense::flips(cpu, sign),
        };
        Self {
            dense: Dense::new(cpu, &parts),
            sign,
            inputs,
            repeats,
        }
    }

    /// Computes rows; `target` returns the destination of each.
    fn rows<T: Send>(
        &self,
        input: &[u8],
        output: &mut [T],
        split: Split,
        target: impl Fn(&mut [T]) -> TileTarget<'_> + Sync,
    ) -> Result<(), String> {
        let (dense, inputs, repeats) = (&self.dense, self.inputs, self.repeats);
        let outputs = dense.outputs;
        let rows = output.len() / outputs;
        check_length("the output", output.len(), &[rows, outputs])?;
        check_length("the input", input.len(), &[rows, inputs])?;
        // The last inputs of the last row are read as a word: rows are padded to that length.
        let form = dense.form();
        let length = inputs.next_multiple_of(form.inputs());
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
        let input = &*form.words_of(dense.cpu, self.sign, input, split);
        let bytes = length * form.input_bytes();
        let slice = |row: usize| input[row * bytes..(row + 1) * bytes].as_chunks().0;
        if rows == 1 {
            let together = dense.panel_lines();
            let columns = (together * CHANNELS).min(outputs);
            let rows = DenseRows::of_rows(dense, 1, slice);
            let cost = repeats * length * columns;
            split.rows(output, columns, cost, |panel, output| {
                let lines = panel * together;
                let part = Part {
                    group: 0,
                    lines: lines..lines + output.len().div_ceil(CHANNELS),
                    stride: outputs,
                    column: 0,
                    offset: 0,
                };
                dispatch::block(dense, &part, &rows, &mut target(output));
            });
            return Ok(());
        }
        let cost = repeats * length * outputs;
        split.rows(output, outputs, cost, |first, output| {
            for (block, output) in output.chunks_mut(ROWS_PER_BLOCK * outputs).enumerate() {
                let first = first + block * ROWS_PER_BLOCK;
                let count = output.len() / outputs;
                let rows = DenseRows::of_rows(dense, count, |row| slice(first + row));
                let part = Part {
                    group: 0,
                    lines: 0..dense.group_lines(),
                    stride: outputs,
                    column: 0,
                    offset: 0,
                };
                dispatch::block(dense, &part, &rows, &mut target(output));
            }
        });
        Ok(())
    }
}
