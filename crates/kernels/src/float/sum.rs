//! Elementwise sums of rows, from which means over images are computed.

use crate::length::check_length;
use crate::simd::compiled;
use crate::{Cpu, Split};

/// Number of rows that are summed separately before their sum is added to the total. Rounding
/// errors then grow with the square root of the number of blocks.
const ROWS_PER_BLOCK: usize = 64;

compiled! {
    fn add(rows: &[f32], sums: &mut [f32]) {
        for row in rows.chunks_exact(sums.len()) {
            for (sum, element) in sums.iter_mut().zip(row) {
                *sum += element;
            }
        }
    }
}

/// Computes the sums of `count` rows each, from `[groups, count, row]` to `[groups, row]`.
pub fn sum_of_rows(
    cpu: Cpu,
    [groups, count, row]: [usize; 3],
    input: &[f32],
    output: &mut [f32],
    split: Split,
) -> Result<(), String> {
    check_length("the input", input.len(), &[groups, count, row])?;
    check_length("the output", output.len(), &[groups, row])?;
    if row == 0 {
        return Ok(());
    }
    split.rows(output, row, count * row, |first, output| {
        let mut block = vec![0.0; row];
        for (group, sums) in output.chunks_exact_mut(row).enumerate() {
            let start = (first + group) * count * row;
            sums.fill(0.0);
            for rows in input[start..start + count * row].chunks(ROWS_PER_BLOCK * row) {
                block.fill(0.0);
                add(cpu, rows, &mut block);
                add(cpu, &block, sums);
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::sum_of_rows;
    use crate::{Cpu, Split};

    proptest! {
        #[test]
        fn every_row_is_added_once(groups in 0..4_usize, count in 0..200_usize, row in 0..40_usize) {
            let whole = |at: usize| f32::from(u8::try_from(at * 7 % 251).unwrap_or(0));
            let input: Vec<f32> = (0..groups * count * row).map(whole).collect();
            let wanted: Vec<f32> = (0..groups * row)
                .map(|at| (0..count).map(|n| input[(at / row * count + n) * row + at % row]).sum())
                .collect();
            for cpu in Cpu::all() {
                let mut sums = vec![f32::NAN; groups * row];
                let sizes = [groups, count, row];
                prop_assert_eq!(sum_of_rows(cpu, sizes, &input, &mut sums, Split::ONE), Ok(()));
                prop_assert_eq!(&sums, &wanted, "{:?}", cpu);
            }
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let cpu = Cpu::chosen();
        let refused = |sizes| sum_of_rows(cpu, sizes, &[1.0; 6], &mut [0.0; 3], Split::ONE);
        assert_eq!(refused([1, 2, 3]), Ok(()));
        assert!(refused([1, 3, 3]).is_err());
        assert!(refused([usize::MAX, 2, 3]).is_err());
    }
}
