//! ONNX arithmetic on quantised bytes: computes real numbers and rounds once, half to even, before
//! adding the zero point.
//!
//! The result is the same as that of `DequantizeLinear`, an operator and `QuantizeLinear` in
//! float32.

use super::ROUNDING_COST;
use super::elementwise::{ByteReader, ByteWriter, Grid, IntegerRange, PairGrids};
use crate::length::check_length;
use crate::simd::compiled;
use crate::{Cpu, Split};

/// An operation on two tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RealOperation {
    /// `a + b`.
    Add,
    /// `a - b`.
    Subtract,
    /// `a * b`.
    Multiply,
}

compiled! {
    fn widened(extent: &mut [[f32; LANES]; 2], from: &[f32]) {
        let (rows, rest) = from.as_chunks::<LANES>();
        let mut last = [0.0; LANES];
        last[..rest.len()].copy_from_slice(rest);
        for row in rows.iter().chain([&last]) {
            for (at, number) in row.iter().enumerate() {
                extent[0][at] = extent[0][at].min(*number);
                extent[1][at] = extent[1][at].max(*number);
            }
        }
    }
}

/// Number of elements compared at a time.
const LANES: usize = 32;

/// Minimum number of elements for each thread.
const MIN_ELEMENTS_PER_THREAD: usize = 1 << 15;

/// Returns the minimum and maximum of the numbers and zero. NaN is ignored.
pub fn extent(cpu: Cpu, numbers: &[f32], split: Split) -> [f32; 2] {
    let mut of_pieces = vec![[[0.0; LANES]; 2]; numbers.len().div_ceil(MIN_ELEMENTS_PER_THREAD)];
    split.rows(
        &mut of_pieces,
        1,
        MIN_ELEMENTS_PER_THREAD,
        |first, extents| {
            let pieces = numbers.chunks(MIN_ELEMENTS_PER_THREAD).skip(first);
            for (extent, piece) in extents.iter_mut().zip(pieces) {
                widened(cpu, extent, piece);
            }
        },
    );
    let least = of_pieces.iter().flat_map(|[least, _]| least);
    let most = of_pieces.iter().flat_map(|[_, most]| most);
    [
        least.fold(0.0, |least, number| least.min(*number)),
        most.fold(0.0, |most, number| most.max(*number)),
    ]
}

/// Converts bytes to numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dequantizer {
    reader: ByteReader,
    scale: f32,
}

/// Converts numbers to bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quantizer {
    writer: ByteWriter,
    scale: f32,
}

impl Dequantizer {
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "must be compiled with the instructions of the surrounding loop"
    )]
    #[expect(clippy::cast_precision_loss, reason = "nine bits")]
    fn of(self, byte: u8) -> f32 {
        self.reader.read(byte) as f32 * self.scale
    }
}

impl Quantizer {
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "must be compiled with the instructions of the surrounding loop"
    )]
    fn of(self, number: f32) -> u8 {
        self.writer.write(number / self.scale)
    }
}

/// The bytes of two tensors of the same size.
type RealBytes<'a> = [&'a [u8]; 2];

compiled! {
    fn sums(of: [Dequantizer; 2], to_bytes: Quantizer, from: RealBytes<'_>, to: &mut [u8]) {
        for ((to, a), b) in to.iter_mut().zip(from[0]).zip(from[1]) {
            *to = to_bytes.of(of[0].of(*a) + of[1].of(*b));
        }
    }
}

compiled! {
    fn products(of: [Dequantizer; 2], to_bytes: Quantizer, from: RealBytes<'_>, to: &mut [u8]) {
        for ((to, a), b) in to.iter_mut().zip(from[0]).zip(from[1]) {
            *to = to_bytes.of(of[0].of(*a) * of[1].of(*b));
        }
    }
}

compiled! {
    fn moved(of: Dequantizer, to_bytes: Quantizer, from: &[u8], to: &mut [u8]) {
        for (to, byte) in to.iter_mut().zip(from) {
            *to = to_bytes.of(of.of(*byte));
        }
    }
}

compiled! {
    fn rounded(to_bytes: Quantizer, from: &[f32], to: &mut [u8]) {
        for (to, number) in to.iter_mut().zip(from) {
            *to = to_bytes.of(*number);
        }
    }
}

impl Grid {
    fn real(self) -> Result<Dequantizer, String> {
        Ok(Dequantizer {
            reader: self.reader()?,
            scale: self.scale,
        })
    }

    fn rounded(self, range: IntegerRange) -> Result<Quantizer, String> {
        Ok(Quantizer {
            writer: self.writer(range)?,
            scale: self.scale,
        })
    }

    /// Quantises numbers to bytes; NaN becomes the minimum.
    pub fn round(
        self,
        cpu: Cpu,
        range: IntegerRange,
        input: &[f32],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        let to_bytes = self.rounded(range)?;
        check_length("the input", input.len(), &[output.len()])?;
        split.rows(output, 1, ROUNDING_COST, |first, to| {
            rounded(cpu, to_bytes, &input[first..first + to.len()], to);
        });
        Ok(())
    }

    /// Requantises bytes from this grid to another.
    pub fn round_again(
        self,
        cpu: Cpu,
        (to_grid, range): (Self, IntegerRange),
        input: &[u8],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        let (real, rounded) = (self.real()?, to_grid.rounded(range)?);
        check_length("the input", input.len(), &[output.len()])?;
        split.rows(output, 1, ROUNDING_COST, |first, to| {
            moved(cpu, real, rounded, &input[first..first + to.len()], to);
        });
        Ok(())
    }
}

impl PairGrids {
    /// Combines two tensors of the same size.
    pub fn compute(
        &self,
        cpu: Cpu,
        operation: RealOperation,
        input: RealBytes<'_>,
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        let [left, right] = self.inputs;
        let mut of = [left.real()?, right.real()?];
        if operation == RealOperation::Subtract {
            of[1].scale = -of[1].scale;
        }
        let rounded = self.output.rounded(self.range)?;
        check_length("the first input", input[0].len(), &[output.len()])?;
        check_length("the second input", input[1].len(), &[output.len()])?;
        split.rows(output, 1, ROUNDING_COST, |first, to| {
            let from = input.map(|input| &input[first..first + to.len()]);
            if operation == RealOperation::Multiply {
                products(cpu, of, rounded, from, to);
            } else {
                sums(cpu, of, rounded, from, to);
            }
        });
        Ok(())
    }
}
