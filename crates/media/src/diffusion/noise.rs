//! Noise of a seed: the same on every machine.

use std::f64::consts::TAU;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

/// Returns this many numbers with mean 0 and variance 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "noise needs few digits"
)]
pub(super) fn normal(seed: u64, count: usize) -> Vec<f32> {
    let mut source = ChaCha8Rng::seed_from_u64(seed);
    // From 0 to 1, without 0.
    let mut uniform = move || ((source.next_u64() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
    let mut values = Vec::with_capacity(count + 1);
    while values.len() < count {
        let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), TAU * uniform());
        values.extend([radius * angle.cos(), radius * angle.sin()].map(|value| value as f32));
    }
    values.truncate(count);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_normal_and_belongs_to_its_seed() {
        let values = normal(7, 20_001);
        assert_eq!((values.len(), &values[..3]), (20_001, &normal(7, 3)[..]));
        assert_ne!(values[..3], normal(8, 3)[..]);
        let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / 20_001.0;
        let squares = values.iter().map(|value| f64::from(*value).powi(2));
        let variance = squares.sum::<f64>() / 20_001.0;
        assert!(
            mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05,
            "{mean} {variance}"
        );
    }
}
