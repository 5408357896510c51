//! Quantises rows to 255 steps between their minimum and maximum, as XNNPACK's dynamic quantisation
//! does.
#![expect(
    clippy::inline_always,
    reason = "only inlined code is compiled with the caller's instructions"
)]

use super::panels::Bits;
use crate::cpu::Level;
use crate::simd::compiled;
use crate::{Cpu, Split};

/// Adding and subtracting this rounds numbers below 2²² to integers, half to even.
const ROUNDING_SHIFT: f32 = 12_582_912.0;

/// Cost of rounding a number, in multiplications of a product.
const COST: usize = 16;

/// The quantisation of a row.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct RowQuantization {
    /// Number of steps in 1.
    scale: f32,
    /// Zero point, from -128 to 127.
    zero: f32,
}

impl RowQuantization {
    /// Computes scale and zero point from a row's minimum and maximum; the range includes 0.
    ///
    /// The zero point is rounded to an integer at the end with the smaller error.
    #[expect(clippy::float_cmp, reason = "a row of zeros only")]
    #[inline(always)]
    pub fn of(row: &[f32]) -> Self {
        let (low, high) = extremes(row);
        let scale = if low == high {
            1.0
        } else {
            255.0 / (high - low)
        };
        let (scaled_low, scaled_high) = (low * scale, high * scale);
        let error_low = -128.0 + scaled_low;
        let error_high = 127.0 + scaled_high;
        let zero = if error_low + error_high > 0.0 {
            -128.0 - scaled_low
        } else {
            127.0 - scaled_high
        };
        let zero = zero.clamp(-128.0, 127.0).round_ties_even();
        Self { scale, zero }
    }

    /// Returns the size of a step.
    pub fn step_size(self) -> f32 {
        self.scale.recip()
    }

    /// Returns the signed number of steps of a number from 0. Together with the zero point it fits
    /// into eight bits.
    pub fn steps_from_zero(self, x: f32) -> f32 {
        self.away(x) - ROUNDING_SHIFT
    }

    /// Returns the zero point; 0 for a row with infinite numbers, which has none.
    #[expect(clippy::cast_possible_truncation, reason = "a small integer")]
    #[inline(always)]
    pub(super) fn zero(self) -> i32 {
        self.zero as i32
    }

    /// Returns the step that a number is rounded to, in the lower eight bits.
    #[inline(always)]
    pub(super) fn place(self, x: f32, zero: i32) -> i32 {
        // Numbers near `ROUNDING_SHIFT` have their integer part in their lower bits.
        let whole = self
            .away(x)
            .to_bits()
            .wrapping_sub(ROUNDING_SHIFT.to_bits());
        whole.cast_signed().wrapping_add(zero)
    }

    #[inline(always)]
    fn away(self, x: f32) -> f32 {
        let (least, most) = (-128.0 - self.zero, 127.0 - self.zero);
        (x * self.scale).max(least).min(most) + ROUNDING_SHIFT
    }
}

/// Returns the minimum and maximum of a row and 0; NaN is ignored.
#[inline(always)]
fn extremes(row: &[f32]) -> (f32, f32) {
    let (eights, rest) = row.as_chunks::<8>();
    let (mut lows, mut highs) = ([0.0_f32; 8], [0.0_f32; 8]);
    for eight in eights {
        for ((low, high), x) in lows.iter_mut().zip(&mut highs).zip(eight) {
            *low = low.min(*x);
            *high = high.max(*x);
        }
    }
    let low = lows.iter().chain(rest).fold(0.0_f32, |low, x| low.min(*x));
    let high = highs.iter().chain(rest);
    (low, high.fold(0.0_f32, |high, x| high.max(*x)))
}

/// Quantised rows, in the order in which kernels read them.
///
/// Each group of a row is padded with zeros to a multiple of eight. Four inputs are packed into one
/// integer, the first one in its lowest bits; or the first and the third into one integer, the second
/// and the fourth into the next.
pub(super) struct Quantized {
    /// Units of eight inputs, or halves of them, row after row.
    pub(super) pairs: Vec<[i32; 2]>,
    /// Sums of the inputs of each group, row after row.
    pub(super) sums: Vec<i32>,
    /// Quantisation of each row.
    pub(super) steps: Vec<RowQuantization>,
}

impl Quantized {
    /// Quantises rows of this many inputs; `group` divides the inputs.
    pub(super) fn of(
        (cpu, bits): (Cpu, Bits),
        input: &[f32],
        [inputs, group]: [usize; 2],
        split: Split,
    ) -> Self {
        let rows = input.len() / inputs;
        let groups = inputs / group;
        let is_wide = bits == Bits::Eight && matches!(cpu.level(), Level::Avx2 | Level::Avx512);
        let pairs = groups * group.div_ceil(8) * if is_wide { 2 } else { 1 };
        let mut quantized = Self {
            pairs: vec![[0; 2]; rows * pairs],
            sums: vec![0; rows * groups],
            steps: vec![RowQuantization::default(); rows],
        };
        let places = quantized
            .pairs
            .chunks_exact_mut(pairs)
            .zip(quantized.sums.chunks_exact_mut(groups))
            .zip(&mut quantized.steps);
        let rows = places.zip(input.chunks_exact(inputs));
        let mut rows: Vec<QuantizeRow<'_>> = rows
            .map(|(((pairs, sums), steps), input)| QuantizeRow {
                input,
                pairs,
                is_wide,
                sums,
                steps,
            })
            .collect();
        split.rows(&mut rows, 1, inputs * COST, |_, rows| {
            for row in rows {
                rounded(cpu, row, group);
            }
        });
        quantized
    }
}

/// A row and its output.
pub(super) struct QuantizeRow<'a> {
    input: &'a [f32],
    pairs: &'a mut [[i32; 2]],
    is_wide: bool,
    sums: &'a mut [i32],
    steps: &'a mut RowQuantization,
}

compiled! {
    fn rounded(row: &mut QuantizeRow<'_>, group: usize) {
        *row.steps = RowQuantization::of(row.input);
        let groups = row.input.chunks_exact(group);
        let octets = group.div_ceil(8);
        // Loops instead of closures, which are not compiled with the instructions of this function.
        if row.is_wide {
            let places = row.pairs.as_chunks_mut::<2>().0.chunks_exact_mut(octets);
            for ((input, places), sum) in groups.zip(places).zip(&mut *row.sums) {
                *sum = group_of(*row.steps, input, places, pack_wide);
            }
        } else {
            let places = row.pairs.chunks_exact_mut(octets);
            for ((input, places), sum) in groups.zip(places).zip(&mut *row.sums) {
                *sum = group_of(*row.steps, input, places, pack_octet);
            }
        }
    }
}

/// Writes a group of a row and returns its sum.
#[inline(always)]
fn group_of<T>(
    steps: RowQuantization,
    input: &[f32],
    octets: &mut [T],
    pack: impl Fn([i32; 8]) -> T,
) -> i32 {
    let zero = steps.zero();
    let (eights, rest) = input.as_chunks::<8>();
    let mut sums = [0_i32; 8];
    let (whole, last) = octets.split_at_mut(eights.len());
    for (octet, eight) in whole.iter_mut().zip(eights) {
        let places = eight.map(|x| signed(steps.place(x, zero)));
        for (sum, place) in sums.iter_mut().zip(places) {
            *sum = sum.wrapping_add(place);
        }
        *octet = pack(places);
    }
    if let [octet] = last {
        let mut places = [0; 8];
        for (place, x) in places.iter_mut().zip(rest) {
            *place = signed(steps.place(*x, zero));
        }
        for (sum, place) in sums.iter_mut().zip(places) {
            *sum = sum.wrapping_add(place);
        }
        *octet = pack(places);
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

/// Returns the lower eight bits as a signed number.
#[inline(always)]
fn signed(x: i32) -> i32 {
    (x << 24) >> 24
}

/// Packs eight 8-bit numbers into two 32-bit ones.
#[inline(always)]
fn pack_octet(x: [i32; 8]) -> [i32; 2] {
    let four =
        |[a, b, c, d]: [i32; 4]| (a & 255) | ((b & 255) << 8) | ((c & 255) << 16) | (d << 24);
    [
        four([x[0], x[1], x[2], x[3]]),
        four([x[4], x[5], x[6], x[7]]),
    ]
}

/// Packs eight 8-bit numbers into pairs of 16 bits: the even and the odd ones of each four.
#[inline(always)]
fn pack_wide(x: [i32; 8]) -> [[i32; 2]; 2] {
    let pair = |a: i32, b: i32| (a & 0xffff) | (b << 16);
    [
        [pair(x[0], x[2]), pair(x[1], x[3])],
        [pair(x[4], x[6]), pair(x[5], x[7])],
    ]
}
