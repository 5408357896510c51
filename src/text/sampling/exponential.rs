//! The exponential function on many numbers at once.
//!
//! Invariant: additions and products alone, so that the compiler takes several at a time and every
//! machine gives the same bits. The error is below 3e-7 of the value.

/// Below this the result is zero.
const LEAST: f32 = -87.0;

/// Added and taken away again, it rounds to a whole number.
const ROUNDING: f32 = 12_582_912.0;

/// eˣ of what is at most zero; 0 below -87, where nothing is ever drawn.
#[inline]
pub(super) fn exponential(x: f32) -> f32 {
    // e^x = 2^n · e^r with |r| ≤ ln 2 / 2, and e^r by its series. ln 2 is taken away in two parts,
    // the first of which is exact for any n that occurs.
    let held = x.max(LEAST);
    let shifted = held * std::f32::consts::LOG2_E + ROUNDING;
    let n = shifted - ROUNDING;
    let r = (held - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let series = 1.0 / 720.0;
    let series = series * r + 1.0 / 120.0;
    let series = series * r + 1.0 / 24.0;
    let series = series * r + 1.0 / 6.0;
    let series = series * r + 0.5;
    let series = series * r + 1.0;
    let series = series * r + 1.0;
    // The low bits of the shifted number are n: moved to the exponent they are 2^n.
    let power = f32::from_bits(
        shifted
            .to_bits()
            .wrapping_sub(ROUNDING.to_bits())
            .wrapping_add(127)
            << 23,
    );
    let value = series * power;
    if x < LEAST { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_exponential() {
        for step in 0..87_000_u32 {
            #[expect(clippy::cast_precision_loss, reason = "steps are few")]
            let x = step as f32 * -0.001;
            let exact = f64::from(x).exp();
            let error = (f64::from(exponential(x)) - exact).abs() / exact;
            assert!(error < 3e-7, "{x}: {error}");
        }
        assert_eq!(exponential(0.0).to_bits(), 1.0_f32.to_bits());
        assert_eq!(exponential(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(exponential(f32::MIN).to_bits(), 0);
    }
}
