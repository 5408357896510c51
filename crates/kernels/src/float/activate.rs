//! Activation functions in float32.
#![expect(
    clippy::inline_always,
    reason = "only inlined code is compiled with the caller's instructions"
)]

use super::Activation;
use crate::simd::compiled;

compiled! {
    /// Applies an activation in place.
    fn in_place(activation: Activation, values: &mut [f32]) {
        match activation {
            Activation::None => {}
            Activation::Clamp { least, most } => {
                for value in values {
                    *value = clamped(*value, least, most);
                }
            }
            Activation::HardSwish => {
                for value in values {
                    *value *= hard_sigmoid(*value);
                }
            }
            Activation::Sigmoid => {
                for value in values {
                    *value = sigmoid(*value);
                }
            }
            Activation::Silu => {
                for value in values {
                    *value *= sigmoid(*value);
                }
            }
        }
    }
}

compiled! {
    /// Multiplies the negative numbers of rows by the slopes of their columns.
    fn by_slopes(slopes: &[f32], values: &mut [f32]) {
        for row in values.chunks_mut(slopes.len()) {
            for (value, slope) in row.iter_mut().zip(slopes) {
                *value = if *value < 0.0 { *value * slope } else { *value };
            }
        }
    }
}

/// Clamps to a range; NaN stays NaN.
#[inline(always)]
fn clamped(value: f32, least: f32, most: f32) -> f32 {
    let value = if value < least { least } else { value };
    if value > most { most } else { value }
}

/// Computes `x + 3`, clamped to the range 0 to 6 and divided by 6.
#[inline(always)]
fn hard_sigmoid(value: f32) -> f32 {
    clamped(value + 3.0, 0.0, 6.0) * (1.0 / 6.0)
}

/// Computes `1 / (1 + e^-x)`.
#[inline(always)]
fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + exponential(-value))
}

/// Computes `e^x` to within a few units in the last place: 0 below -87.3 and infinite above 88.4.
#[inline(always)]
pub(super) fn exponential(value: f32) -> f32 {
    // Adding this to a small number leaves the nearest integer in the last bits.
    const WHOLE: f32 = 12_582_912.0;
    // ln 2 in two parts, so that integer multiples of the first part are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

    let value = clamped(value, -88.0, 89.0);
    let shifted = value * std::f32::consts::LOG2_E + WHOLE;
    let power = shifted - WHOLE;
    let rest = value - power * LN_2[0] - power * LN_2[1];
    // The series of e^x, fitted to |x| <= ln 2 / 2.
    let mut series = 1.987_569_1e-4;
    for factor in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        0.166_666_65,
        0.5,
    ] {
        series = series * rest + factor;
    }
    let series = series * rest * rest + rest + 1.0;
    let exponent = shifted
        .to_bits()
        .wrapping_sub(WHOLE.to_bits())
        .wrapping_add(127);
    series * f32::from_bits(exponent << 23)
}
