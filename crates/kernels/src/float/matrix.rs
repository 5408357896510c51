//! Products of a few rows with a temporary matrix that is not packed; its rows are padded to whole
//! registers.

use crate::simd::enter;

/// Defines the functions for one instruction set, with as many rows in a tile as the registers
/// hold.
macro_rules! products {
    (#[$set:meta] $registers:ident: $($rows:literal)*) => {
        use crate::float::registers::$registers::{LANES, fused, load, splat, store};

        /// Multiplies rows by a matrix `[depth][across]`, two registers wide at a time.
        #[$set]
        pub(super) fn products(rows: &[&[f32]], matrix: &[f32], across: usize, output: &mut [f32]) {
            for column in (0..across).step_by(2 * LANES) {
                match rows.len() {
                    $($rows => tile::<$rows>(rows, matrix, [across, column], output),)*
                    rows => unreachable!("a tile of {rows} rows"),
                }
            }
        }

        #[$set]
        fn tile<const ROWS: usize>(
            rows: &[&[f32]],
            matrix: &[f32],
            [across, column]: [usize; 2],
            output: &mut [f32],
        ) {
            let depth = rows[0].len();
            let mut inputs: [&[f32]; ROWS] = [&[]; ROWS];
            for row in 0..ROWS {
                inputs[row] = &rows[row][..depth];
            }
            let mut sums = [[splat(0.0); 2]; ROWS];
            for (place, line) in matrix.chunks_exact(across).take(depth).enumerate() {
                let line = line[column..][..2 * LANES].as_chunks::<LANES>().0;
                let line = [load(&line[0]), load(&line[1])];
                for row in 0..ROWS {
                    let input = splat(inputs[row][place]);
                    for wide in 0..2 {
                        sums[row][wide] = fused(input, line[wide], sums[row][wide]);
                    }
                }
            }
            for (sums, output) in sums.iter().zip(output.chunks_exact_mut(across)) {
                let output = output[column..][..2 * LANES].as_chunks_mut::<LANES>().0;
                store(&mut output[0], sums[0]);
                store(&mut output[1], sums[1]);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    products!(#[target_feature(enable = "avx2,fma")] avx2: 1 2 3 4 5 6);
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    products!(#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")] avx512: 1 2 3 4 5 6 7 8 9 10);
}

#[cfg(target_arch = "aarch64")]
mod neon {
    products!(#[target_feature(enable = "neon")] neon: 1 2 3 4 5 6 7 8);
}

mod plain {
    products!(#[inline(never)] plain: 1 2 3 4);
}

enter! {
    /// Multiplies at most a tile of rows, all of the same length, by a matrix `[depth][across]`.
    fn products(rows: &[&[f32]], matrix: &[f32], across: usize, output: &mut [f32]);
}
