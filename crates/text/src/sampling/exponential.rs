//! A vectorised exponential function.
//!
//! Invariant: it uses only additions and multiplications. So the compiler can process several
//! numbers at once, and every machine computes the same bits. The relative error is below 3e-7.

/// Arguments below this yield zero.
const MIN_ARGUMENT: f32 = -87.0;

/// Adding and subtracting this number rounds to an integer.
const ROUNDING_OFFSET: f32 = 12_582_912.0;

/// Computes eˣ for x ≤ 0. Arguments below -87 yield 0; such tokens are never sampled.
#[inline]
pub(super) fn exponential(x: f32) -> f32 {
    // e^x = 2^n · e^r with |r| ≤ ln 2 / 2, and e^r by its series. ln 2 is subtracted in two parts;
    // the first is exact for every n that occurs.
    let held = x.max(MIN_ARGUMENT);
    let shifted = held * std::f32::consts::LOG2_E + ROUNDING_OFFSET;
    let n = shifted - ROUNDING_OFFSET;
    let r = (held - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let series = 1.0 / 720.0;
    let series = series * r + 1.0 / 120.0;
    let series = series * r + 1.0 / 24.0;
    let series = series * r + 1.0 / 6.0;
    let series = series * r + 0.5;
    let series = series * r + 1.0;
    let series = series * r + 1.0;
    // The low bits of the shifted number are n. Moved to the exponent, they make 2^n.
    let power = f32::from_bits(
        shifted
            .to_bits()
            .wrapping_sub(ROUNDING_OFFSET.to_bits())
            .wrapping_add(127)
            << 23,
    );
    let value = series * power;
    if x < MIN_ARGUMENT { 0.0 } else { value }
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
