//! Multiplies the rows of a group by one row of factors, for example an image's pixels by a factor
//! for each channel.

use crate::length::check_length;
use crate::simd::compiled;
use crate::split::by_group;
use crate::{Cpu, Split};

compiled! {
    fn by_row(factors: &[f32], from: &[f32], to: &mut [f32]) {
        let rows = from.chunks_exact(factors.len());
        for (to, from) in to.chunks_exact_mut(factors.len()).zip(rows) {
            for ((to, number), factor) in to.iter_mut().zip(from).zip(factors) {
                *to = number * factor;
            }
        }
    }
}

compiled! {
    fn by_one(factor: f32, from: &[f32], to: &mut [f32]) {
        for (to, number) in to.iter_mut().zip(from) {
            *to = number * factor;
        }
    }
}

/// Multiplies rows `[groups, count, row]` by factors `[groups, row]`.
pub fn scale_rows(
    cpu: Cpu,
    [groups, count, row]: [usize; 3],
    [input, factors]: [&[f32]; 2],
    output: &mut [f32],
    split: Split,
) -> Result<(), String> {
    check_length("the input", input.len(), &[groups, count, row])?;
    check_length("the factors", factors.len(), &[groups, row])?;
    check_length("the output", output.len(), &[input.len()])?;
    if input.is_empty() {
        return Ok(());
    }
    split.rows(output, row, row, |first, output| {
        by_group(first, [count, row], output, |group, at, to| {
            let from = &input[(group * count + at) * row..][..to.len()];
            let factors = &factors[group * row..(group + 1) * row];
            if let [factor] = factors {
                by_one(cpu, *factor, from, to);
            } else {
                by_row(cpu, factors, from, to);
            }
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::scale_rows;
    use crate::{Cpu, Split};

    proptest! {
        #[test]
        fn every_row_has_its_factors(
            groups in 0..4_usize, count in 0..900_usize, row in 0..40_usize, threads in 1..3_usize,
        ) {
            let whole = |at: usize| f32::from(u8::try_from(at * 7 % 251).unwrap_or(0)) - 100.0;
            let input: Vec<f32> = (0..groups * count * row).map(whole).collect();
            let factors: Vec<f32> = (3..groups * row + 3).map(whole).collect();
            let factor = |at: usize| factors[at / row / count * row + at % row];
            let wanted: Vec<f32> = input.iter().enumerate().map(|(at, x)| x * factor(at)).collect();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            for cpu in Cpu::all() {
                let mut output = vec![f32::NAN; input.len()];
                let sizes = [groups, count, row];
                let told = pool.install(|| {
                    scale_rows(cpu, sizes, [&input, &factors], &mut output, Split::current())
                });
                prop_assert_eq!(told, Ok(()));
                prop_assert_eq!(&output, &wanted, "{:?}", cpu);
            }
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let cpu = Cpu::chosen();
        let told = |sizes, factors: &[f32]| {
            scale_rows(cpu, sizes, [&[1.0; 6], factors], &mut [0.0; 6], Split::ONE)
        };
        assert_eq!(told([1, 2, 3], &[1.0; 3]), Ok(()));
        assert!(told([1, 3, 2], &[1.0; 3]).is_err());
        assert!(told([1, 3, 3], &[1.0; 3]).is_err());
        assert!(told([usize::MAX, 2, 3], &[1.0; 3]).is_err());
    }
}
