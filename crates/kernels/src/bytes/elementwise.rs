//! Arithmetic on single quantised bytes and pairs of them.
//!
//! The loops are plain Rust, compiled once for each kind of register.

use super::{ByteLimits, ROUNDING_COST, Sign, round_to};
use crate::length::check_length;
use crate::simd::compiled;
use crate::{Cpu, Split};

/// The quantisation of a tensor: the real number for each byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    /// Sign of the bytes.
    pub sign: Sign,
    /// Scale of a step.
    pub scale: f32,
    /// Zero point.
    pub zero_point: i32,
}

/// A range of stored integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegerRange {
    /// Minimum.
    pub least: i32,
    /// Maximum.
    pub most: i32,
}

impl IntegerRange {
    /// Returns the range of all integers that bytes of this sign can store.
    pub const fn whole(sign: Sign) -> Self {
        let (least, most) = sign.range();
        Self { least, most }
    }
}

/// Converts bytes to integers: flips bits to count from 0, then subtracts the zero point.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteReader {
    flip: u8,
    zero: i32,
}

/// Converts integers to bytes by adding the zero point.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteWriter {
    least: f32,
    most: f32,
    zero: i32,
}

impl Grid {
    /// Returns the conversion from bytes.
    pub(super) fn reader(self) -> Result<ByteReader, String> {
        self.sign.check("zero point", self.zero_point)?;
        if !(self.scale.is_normal() && self.scale > 0.0) {
            return Err(format!("invalid scale {}", self.scale));
        }
        let flip = self.sign.flip();
        Ok(ByteReader {
            flip,
            zero: self.zero_point + i32::from(flip),
        })
    }

    /// Returns the conversion to bytes.
    pub(super) fn writer(self, range: IntegerRange) -> Result<ByteWriter, String> {
        self.reader()?;
        let limits = ByteLimits::new(self.sign, self.zero_point, [range.least, range.most])?;
        Ok(ByteWriter {
            least: limits.least,
            most: limits.most,
            zero: limits.zero,
        })
    }
}

impl ByteReader {
    /// Returns the integer of a byte, minus the zero point.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "must be compiled with the instructions of the surrounding loop"
    )]
    pub(super) fn read(self, byte: u8) -> i32 {
        i32::from(byte ^ self.flip) - self.zero
    }
}

impl ByteWriter {
    /// Returns the byte for a number of steps, clamped to the range and rounded half to even.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "must be compiled with the instructions of the surrounding loop"
    )]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "takes the low byte"
    )]
    pub(super) fn write(self, steps: f32) -> u8 {
        (round_to(steps, self.least, self.most) + self.zero) as u8
    }

    /// Returns the byte for an integer number of steps below 2²⁴.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "must be compiled with the instructions of the surrounding loop"
    )]
    #[expect(clippy::cast_precision_loss, reason = "below 2²⁴")]
    fn write_integer(self, steps: i32) -> u8 {
        self.write(steps as f32)
    }

    /// Returns the byte for a number of steps, adding the zero point before rounding.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "must be compiled with the instructions of the surrounding loop"
    )]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "small integers; takes the low byte"
    )]
    pub(super) fn write_after_zero_point(self, steps: f32) -> u8 {
        let zero = self.zero as f32;
        round_to(steps + zero, self.least + zero, self.most + zero) as u8
    }
}

/// A sum in XNNPACK's fixed-point arithmetic: factors of 21 bits, integer addition, half a step
/// rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedSum {
    a: i32,
    b: i32,
    shift: u32,
}

impl FixedSum {
    /// Returns the sum of two numbers times these factors, or `None` if XNNPACK does not support
    /// the factors.
    #[expect(clippy::cast_possible_truncation, reason = "below 2²¹")]
    pub(crate) fn new([a, b]: [f32; 2]) -> Option<Self> {
        let largest = a.abs().max(b.abs());
        if !a.is_finite()
            || !b.is_finite()
            || !(2.0_f32.powi(-10)..2.0_f32.powi(8)).contains(&largest)
        {
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

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "must be compiled with the instructions of the surrounding loop"
    )]
    fn of(self, a: i32, b: i32) -> i32 {
        let half = 1 << (self.shift - 1);
        (a * self.a).wrapping_add(b * self.b).wrapping_add(half) >> self.shift
    }
}

/// The grids of two input tensors and of the output.
#[derive(Debug, Clone, Copy)]
pub struct PairGrids {
    /// Grids of the inputs.
    pub inputs: [Grid; 2],
    /// Grid of the output.
    pub output: Grid,
    /// Range of the output.
    pub range: IntegerRange,
}

/// Factors and shifts of channels, and the range of the results.
#[derive(Debug, Clone)]
pub struct AffineChannels {
    /// The factor of each channel.
    pub factors: Vec<f32>,
    /// The shift of each channel.
    pub shifts: Vec<f32>,
    /// Minimum and maximum.
    pub range: [f32; 2],
}

/// The bytes of two tensors of the same size.
type PairBytes<'a> = [&'a [u8]; 2];

compiled! {
    fn sums(sum: FixedSum, of: ([ByteReader; 2], ByteWriter), from: PairBytes<'_>, to: &mut [u8]) {
        let ([left, right], writer) = of;
        for ((to, a), b) in to.iter_mut().zip(from[0]).zip(from[1]) {
            *to = writer.write_integer(sum.of(left.read(*a), right.read(*b)));
        }
    }
}

compiled! {
    fn products(factor: f32, of: ([ByteReader; 2], ByteWriter), from: PairBytes<'_>, to: &mut [u8]) {
        let ([left, right], writer) = of;
        for ((to, a), b) in to.iter_mut().zip(from[0]).zip(from[1]) {
            #[expect(clippy::cast_precision_loss, reason = "below 2¹⁸")]
            let product = (left.read(*a) * right.read(*b)) as f32;
            *to = writer.write(product * factor);
        }
    }
}

compiled! {
    fn quantized(factor: f32, writer: ByteWriter, from: &[f32], to: &mut [u8]) {
        for (to, x) in to.iter_mut().zip(from) {
            *to = writer.write(x * factor);
        }
    }
}

compiled! {
    fn dequantized(scale: f32, reader: ByteReader, from: &[u8], to: &mut [f32]) {
        for (to, byte) in to.iter_mut().zip(from) {
            #[expect(clippy::cast_precision_loss, reason = "nine bits")]
            let steps = reader.read(*byte) as f32;
            *to = steps * scale;
        }
    }
}

compiled! {
    fn moved(factors: [f32; 2], of: (ByteReader, ByteWriter), from: &[u8], to: &mut [u8]) {
        for (to, byte) in to.iter_mut().zip(from) {
            #[expect(clippy::cast_precision_loss, reason = "nine bits")]
            let steps = of.0.read(*byte) as f32;
            *to = of.1.write(steps * factors[0] * factors[1]);
        }
    }
}

compiled! {
    fn sloped(factors: [f32; 2], of: (ByteReader, ByteWriter), slopes: &[f32], from: &[u8], to: &mut [u8]) {
        let rows = from.chunks_exact(slopes.len());
        for (to, from) in to.chunks_exact_mut(slopes.len()).zip(rows) {
            for ((to, byte), slope) in to.iter_mut().zip(from).zip(slopes) {
                #[expect(clippy::cast_precision_loss, reason = "nine bits")]
                let number = of.0.read(*byte) as f32 * factors[0];
                let number = if number < 0.0 { number * slope } else { number };
                *to = of.1.write(number * factors[1]);
            }
        }
    }
}

compiled! {
    fn affine(factors: [f32; 2], of: (ByteReader, ByteWriter), channels: &AffineChannels, from: &[u8], to: &mut [u8]) {
        let [least, most] = channels.range;
        let row = channels.factors.len();
        let rows = from.chunks_exact(row);
        for (to, from) in to.chunks_exact_mut(row).zip(rows) {
            let channels = channels.factors.iter().zip(&channels.shifts);
            for ((to, byte), (factor, shift)) in to.iter_mut().zip(from).zip(channels) {
                #[expect(clippy::cast_precision_loss, reason = "nine bits")]
                let number = of.0.read(*byte) as f32 * factors[0];
                let number = number.mul_add(*factor, *shift).max(least).min(most);
                *to = of.1.write(number * factors[1]);
            }
        }
    }
}

compiled! {
    fn held(flip: u8, range: [u8; 2], from: &[u8], to: &mut [u8]) {
        for (to, byte) in to.iter_mut().zip(from) {
            *to = (byte ^ flip).max(range[0]).min(range[1]) ^ flip;
        }
    }
}

impl PairGrids {
    fn parts(&self) -> Result<([ByteReader; 2], ByteWriter), String> {
        let [left, right] = self.inputs;
        let readers = [left.reader()?, right.reader()?];
        Ok((readers, self.output.writer(self.range)?))
    }

    /// Returns the sum or difference of the inputs, or `None` if XNNPACK does not support the
    /// scales.
    pub fn fixed_sum(&self, subtract: bool) -> Option<FixedSum> {
        let sign = if subtract { -1.0 } else { 1.0 };
        let [left, right] = self.inputs;
        let scale = self.output.scale;
        FixedSum::new([left.scale / scale, sign * right.scale / scale])
    }

    /// Adds two tensors of the same size.
    pub fn add(
        &self,
        cpu: Cpu,
        sum: FixedSum,
        input: [&[u8]; 2],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        let of = self.parts()?;
        check_length("the first input", input[0].len(), &[output.len()])?;
        check_length("the second input", input[1].len(), &[output.len()])?;
        split.rows(output, 1, ROUNDING_COST, |first, to| {
            let from = input.map(|input| &input[first..first + to.len()]);
            sums(cpu, sum, of, from, to);
        });
        Ok(())
    }

    /// Multiplies two tensors of the same size.
    pub fn multiply(
        &self,
        cpu: Cpu,
        input: [&[u8]; 2],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        let of = self.parts()?;
        check_length("the first input", input[0].len(), &[output.len()])?;
        check_length("the second input", input[1].len(), &[output.len()])?;
        let [left, right] = self.inputs;
        let factor = left.scale * right.scale / self.output.scale;
        split.rows(output, 1, ROUNDING_COST, |first, to| {
            let from = input.map(|input| &input[first..first + to.len()]);
            products(cpu, factor, of, from, to);
        });
        Ok(())
    }
}

impl Grid {
    /// Quantises numbers to bytes.
    pub fn quantize(
        self,
        cpu: Cpu,
        range: IntegerRange,
        input: &[f32],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        let writer = self.writer(range)?;
        check_length("the input", input.len(), &[output.len()])?;
        split.rows(output, 1, ROUNDING_COST, |first, to| {
            let from = &input[first..first + to.len()];
            quantized(cpu, self.scale.recip(), writer, from, to);
        });
        Ok(())
    }

    /// Dequantises bytes to numbers.
    pub fn dequantize(
        self,
        cpu: Cpu,
        input: &[u8],
        output: &mut [f32],
        split: Split,
    ) -> Result<(), String> {
        let reader = self.reader()?;
        check_length("the input", input.len(), &[output.len()])?;
        split.rows(output, 1, ROUNDING_COST, |first, to| {
            let from = &input[first..first + to.len()];
            dequantized(cpu, self.scale, reader, from, to);
        });
        Ok(())
    }

    /// Requantises bytes from this grid to another.
    pub fn requantize(
        self,
        cpu: Cpu,
        (to, range): (Self, IntegerRange),
        input: &[u8],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        let of = (self.reader()?, to.writer(range)?);
        check_length("the input", input.len(), &[output.len()])?;
        let factors = [self.scale, to.scale.recip()];
        split.rows(output, 1, ROUNDING_COST, |first, to| {
            moved(cpu, factors, of, &input[first..first + to.len()], to);
        });
        Ok(())
    }
}

impl Grid {
    /// Multiplies numbers by the factors of their channels, adds shifts and clamps, from this grid to
    /// another.
    pub fn affine(
        self,
        cpu: Cpu,
        (to, range): (Self, IntegerRange),
        channels: &AffineChannels,
        input: &[u8],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        let of = (self.reader()?, to.writer(range)?);
        let row = channels.factors.len();
        check_length("the shifts", channels.shifts.len(), &[row])?;
        check_rows(row, input, output)?;
        let factors = [self.scale, to.scale.recip()];
        split.rows(output, row, row * ROUNDING_COST, |first, to| {
            let from = &input[first * row..][..to.len()];
            affine(cpu, factors, of, channels, from, to);
        });
        Ok(())
    }

    /// Multiplies negative numbers by the slopes of their channels, from this grid to another.
    pub fn sloped(
        self,
        cpu: Cpu,
        (to, range): (Self, IntegerRange),
        slopes: &[f32],
        input: &[u8],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        let of = (self.reader()?, to.writer(range)?);
        let row = slopes.len();
        check_rows(row, input, output)?;
        let factors = [self.scale, to.scale.recip()];
        split.rows(output, row, row * ROUNDING_COST, |first, to| {
            let from = &input[first * row..][..to.len()];
            sloped(cpu, factors, of, slopes, from, to);
        });
        Ok(())
    }
}

/// Fails unless both tensors have the same number of rows of this length.
fn check_rows(row: usize, input: &[u8], output: &[u8]) -> Result<(), String> {
    check_length("the input", input.len(), &[output.len()])?;
    let rows = input.len().checked_div(row).unwrap_or(0);
    check_length("the input", input.len(), &[rows, row])
}

/// Clamps bytes to a range of their integers.
pub fn clamp(
    cpu: Cpu,
    (sign, range): (Sign, IntegerRange),
    input: &[u8],
    output: &mut [u8],
    split: Split,
) -> Result<(), String> {
    sign.check("minimum", range.least)?;
    sign.check("maximum", range.most)?;
    check_length("the input", input.len(), &[output.len()])?;
    let flip = sign.flip();
    let bounds = [range.least, range.most].map(|number| sign.byte(number) ^ flip);
    split.rows(output, 1, 1, |first, to| {
        held(cpu, flip, bounds, &input[first..first + to.len()], to);
    });
    Ok(())
}
