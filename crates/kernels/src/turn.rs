//! Transposition of two axes.

use super::Split;
use super::length::check_length;
use super::split::by_group;

/// Number of rows and columns that are transposed together. Each cache line is then read and written once, however far
/// apart the rows are.
const BLOCK: usize = 16;

/// Cost of moving an element, in multiplications of a product.
const COST: usize = 4;

/// Transposes `[lead, a, b, run]` to `[lead, b, a, run]`.
pub fn transposed<T: Copy + Send + Sync>(
    [lead, a, b, run]: [usize; 4],
    input: &[T],
    output: &mut [T],
    split: Split,
) -> Result<(), String> {
    check_length("the input", input.len(), &[lead, a, b, run])?;
    check_length("the output", output.len(), &[input.len()])?;
    if input.is_empty() {
        return Ok(());
    }
    let row = a * run;
    split.rows(output, row, row * COST, |first, output| {
        by_group(first, [b, row], output, |block, first, rows| {
            let from = &input[block * b * row..][..b * row];
            if run == 1 {
                match (a, b) {
                    (2, _) => interleaved::<T, 2>(from, b, first, rows),
                    (3, _) => interleaved::<T, 3>(from, b, first, rows),
                    (4, _) => interleaved::<T, 4>(from, b, first, rows),
                    (_, 2) => separated::<T, 2>(from, a, first, rows),
                    (_, 3) => separated::<T, 3>(from, a, first, rows),
                    (_, 4) => separated::<T, 4>(from, a, first, rows),
                    _ => single(from, [a, b], first, rows),
                }
            } else {
                for (place, from) in from.chunks_exact(b * run).enumerate() {
                    let from = &from[first * run..][..rows.len() / a];
                    for (to, from) in rows.chunks_exact_mut(row).zip(from.chunks_exact(run)) {
                        to[place * run..][..run].copy_from_slice(from);
                    }
                }
            }
        });
    });
    Ok(())
}

/// Writes output rows of few elements from a column of `[A, b]` on.
fn interleaved<T: Copy, const A: usize>(from: &[T], b: usize, first: usize, rows: &mut [T]) {
    let rows = rows.as_chunks_mut::<A>().0;
    let lines: [&[T]; A] = std::array::from_fn(|row| &from[row * b + first..][..rows.len()]);
    for (at, to) in rows.iter_mut().enumerate() {
        for row in 0..A {
            to[row] = lines[row][at];
        }
    }
}

/// Writes output rows of `a` elements from a column of `[a, B]` on, with few columns.
fn separated<T: Copy, const B: usize>(from: &[T], a: usize, first: usize, rows: &mut [T]) {
    let from = from.as_chunks::<B>().0;
    for (number, to) in rows.chunks_exact_mut(a).enumerate() {
        for (to, numbers) in to.iter_mut().zip(from) {
            *to = numbers[first + number];
        }
    }
}

/// Writes output rows of `a` elements from a column of `[a, b]` on.
fn single<T: Copy>(from: &[T], [a, b]: [usize; 2], first: usize, rows: &mut [T]) {
    for (number, to) in rows.chunks_mut(BLOCK * a).enumerate() {
        let (column, columns) = (first + number * BLOCK, to.len() / a);
        for place in (0..a).step_by(BLOCK) {
            let places = BLOCK.min(a - place);
            let at = |row: usize| &from[(place + row) * b + column..][..columns];
            if places < BLOCK {
                for row in 0..places {
                    let to = to[place + row..].iter_mut().step_by(a);
                    for (to, from) in to.zip(at(row)) {
                        *to = *from;
                    }
                }
                continue;
            }
            // Filled with any number: only what is written is read.
            let Some(filler) = at(0).first() else { return };
            let mut block = [[*filler; BLOCK]; BLOCK];
            for row in 0..BLOCK {
                if let Some(numbers) = at(row).first_chunk::<BLOCK>() {
                    for column in 0..BLOCK {
                        block[column][row] = numbers[column];
                    }
                } else {
                    for (block, number) in block.iter_mut().zip(at(row)) {
                        block[row] = *number;
                    }
                }
            }
            for (to, block) in to.chunks_exact_mut(a).zip(&block) {
                to[place..place + BLOCK].copy_from_slice(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::transposed;
    use crate::Split;

    proptest! {
        #[test]
        fn every_element_is_where_it_belongs(
            lead in 0..4_usize, a in 0..90_usize, b in 0..70_usize, run in 0..5_usize, threads in 1..3_usize,
        ) {
            let input: Vec<usize> = (0..lead * a * b * run).collect();
            let mut output = vec![usize::MAX; input.len()];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            let done = pool.install(|| transposed([lead, a, b, run], &input, &mut output, Split::current()));
            prop_assert_eq!(done, Ok(()));
            for (place, found) in output.iter().enumerate() {
                let (within, x, y) = (place % run, place / run % a, place / run / a % b);
                let block = place / run / a / b;
                prop_assert_eq!(*found, ((block * a + x) * b + y) * run + within);
            }
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        assert_eq!(
            transposed([1, 2, 3, 1], &[0; 6], &mut [0; 6], Split::ONE),
            Ok(())
        );
        assert!(transposed([1, 2, 4, 1], &[0; 6], &mut [0; 6], Split::ONE).is_err());
        assert!(transposed([1, 2, 3, 1], &[0; 6], &mut [0; 5], Split::ONE).is_err());
        assert!(transposed([2, usize::MAX, 3, 1], &[0; 6], &mut [0; 6], Split::ONE).is_err());
    }
}
