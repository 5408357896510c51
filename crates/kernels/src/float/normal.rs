//! Normalisation of rows to mean 0 and variance 1.
#![expect(
    clippy::inline_always,
    reason = "only inlined code is compiled with the caller's instructions"
)]

use crate::length::check_length;
use crate::simd::compiled;
use crate::{Cpu, Split};

/// Number of elements that are summed in parallel, which is faster and more exact than one after
/// another.
const LANES: usize = 16;

/// Cost of normalising a number, in multiplications of a product.
const COST: usize = 8;

/// Mean of a row, and the inverse of its standard deviation.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Moments {
    /// The mean.
    pub mean: f32,
    /// The inverse of the standard deviation.
    pub scale: f32,
}

/// A row and its output.
struct NormalRow<'a> {
    input: &'a [f32],
    output: &'a mut [f32],
    moments: &'a mut Moments,
}

/// Normalises rows of this many numbers: `(x - mean) / √(variance + eps)`.
pub fn normalise_rows(
    cpu: Cpu,
    (row, eps): (usize, f32),
    input: &[f32],
    output: &mut [f32],
    moments: &mut [Moments],
    split: Split,
) -> Result<(), String> {
    check_length("the input", input.len(), &[moments.len(), row])?;
    check_length("the output", output.len(), &[input.len()])?;
    if row == 0 {
        // The mean of an empty row is NaN.
        moments.fill(Moments {
            mean: f32::NAN,
            scale: f32::NAN,
        });
        return Ok(());
    }
    let rows = input.chunks_exact(row).zip(output.chunks_exact_mut(row));
    let rows = rows
        .zip(moments)
        .map(|((input, output), moments)| NormalRow {
            input,
            output,
            moments,
        });
    let mut rows: Vec<NormalRow<'_>> = rows.collect();
    split.rows(&mut rows, 1, row * COST, |_, rows| {
        for row in rows {
            normalise(cpu, eps, row.input, row.output, row.moments);
        }
    });
    Ok(())
}

compiled! {
    fn normalise(eps: f32, input: &[f32], output: &mut [f32], moments: &mut Moments) {
        #[expect(clippy::cast_precision_loss, reason = "number of elements")]
        let count = input.len() as f32;
        let mean = sum_of(input, |x| x) / count;
        let variance = sum_of(input, |x| (x - mean) * (x - mean)) / count;
        let scale = 1.0 / (variance + eps).sqrt();
        for (to, x) in output.iter_mut().zip(input) {
            *to = (x - mean) * scale;
        }
        *moments = Moments { mean, scale };
    }
}

/// Sums values in several lanes.
#[inline(always)]
fn sum_of(values: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for values in whole {
        for (lane, value) in lanes.iter_mut().zip(values) {
            *lane += of(*value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += of(*value);
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Moments, normalise_rows};
    use crate::{Cpu, Split};

    proptest! {
        #[test]
        fn rows_have_mean_0_and_variance_1(
            rows in 0..70_usize, row in 1..90_usize, seed in 0..1000_usize, threads in 1..3_usize,
        ) {
            let number = |at: usize| f32::from(u8::try_from((at * 37 + seed) % 251).unwrap_or(0)) / 8.0;
            let input: Vec<f32> = (0..rows * row).map(number).collect();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            for cpu in Cpu::all() {
                let (mut output, mut moments) = (vec![f32::NAN; rows * row], vec![Moments::default(); rows]);
                let done = pool.install(|| {
                    normalise_rows(cpu, (row, 1e-5), &input, &mut output, &mut moments, Split::current())
                });
                prop_assert_eq!(done, Ok(()));
                for (at, (from, to)) in input.chunks(row).zip(output.chunks(row)).enumerate() {
                    let count = f64::from(u8::try_from(row).unwrap_or(0));
                    let mean = from.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
                    let variance = from.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / count;
                    let scale = 1.0 / (variance + 1e-5).sqrt();
                    prop_assert!((f64::from(moments[at].mean) - mean).abs() <= 1e-5 * mean.abs().max(1.0));
                    prop_assert!((f64::from(moments[at].scale) / scale - 1.0).abs() < 1e-3);
                    for (from, to) in from.iter().zip(to) {
                        let wanted = (f64::from(*from) - mean) * scale;
                        prop_assert!((f64::from(*to) - wanted).abs() < 2e-3 * scale.max(1.0), "{to} {wanted}");
                    }
                }
            }
        }
    }

    #[test]
    fn wrong_lengths_are_refused_and_rows_of_nothing_have_no_mean() {
        let cpu = Cpu::chosen();
        let of = |row, rows| {
            let mut moments = vec![Moments::default(); rows];
            normalise_rows(
                cpu,
                (row, 0.0),
                &[1.0; 6],
                &mut [0.0; 6],
                &mut moments,
                Split::ONE,
            )
        };
        assert_eq!(of(3, 2), Ok(()));
        assert!(of(4, 2).is_err());
        assert!(of(usize::MAX, 2).is_err());
        let mut moments = [Moments::default(); 2];
        assert_eq!(
            normalise_rows(cpu, (0, 0.0), &[], &mut [], &mut moments, Split::ONE),
            Ok(())
        );
        assert!(
            moments
                .iter()
                .all(|moments| moments.mean.is_nan() && moments.scale.is_nan())
        );
    }
}
