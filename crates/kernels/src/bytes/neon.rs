//! aarch64 registers of the byte kernels. Dot products multiply signed bytes.

/// Defines operations on 128-bit registers, and the kernels on them.
macro_rules! of_128_bits {
    ($name:ident, $features:literal, rows: $rows:tt, { $($products:tt)* }) => {
        #[doc = concat!("Registers of 128 bits with ", $features, ".")]
        pub(super) mod $name {
            use std::arch::aarch64::*;

            use crate::bytes::ByteLimits;
            use crate::bytes::dense::{BytePanel, Dense, DenseRows, Part};
            use crate::bytes::tiles::{CHANNELS, Line, TilePlace, TileTarget, tiles};
            use crate::simd::arm::*;

            /// Sums of 4 channels.
            type Register = int32x4_t;
            /// Number of registers for a line of weights.
            const PARTS: usize = 4;
            #[target_feature(enable = $features)]
            #[inline]
            fn zero() -> Register {
                vdupq_n_s32(0)
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn integers(from: &[i32; 16]) -> [Register; PARTS] {
                let mut registers = [zero(); PARTS];
                for (register, from) in registers.iter_mut().zip(from.as_chunks().0) {
                    *register = load_integers_128(from);
                }
                registers
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn weights(line: &Line) -> [int8x16_t; PARTS] {
                let mut registers = [vdupq_n_s8(0); PARTS];
                for (register, from) in registers.iter_mut().zip(line.0.as_chunks().0) {
                    *register = vreinterpretq_s8_u8(load_bytes_128(from));
                }
                registers
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn flipped<const FLIP: bool>(bytes: uint8x16_t) -> int8x16_t {
                let flip = vdupq_n_u8(if FLIP { 0x80 } else { 0 });
                vreinterpretq_s8_u8(veorq_u8(bytes, flip))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn store_bytes(
                to: &mut [u8; 16],
                sums: [Register; PARTS],
                factors: &[f32; 16],
                limits: ByteLimits,
            ) {
                let mut numbers = [vdup_n_u16(0); PARTS];
                let each = numbers.iter_mut().zip(sums).zip(factors.as_chunks().0);
                for ((number, sums), factors) in each {
                    let scaled = vmulq_f32(vcvtq_f32_s32(sums), load_floats_128(factors));
                    let raised = vmaxq_f32(scaled, vdupq_n_f32(limits.least));
                    let held = vminq_f32(raised, vdupq_n_f32(limits.most));
                    let rounded = vaddq_s32(vcvtnq_s32_f32(held), vdupq_n_s32(limits.zero));
                    *number = vreinterpret_u16_s16(vmovn_s32(rounded));
                }
                let low = vmovn_u16(vcombine_u16(numbers[0], numbers[1]));
                let high = vmovn_u16(vcombine_u16(numbers[2], numbers[3]));
                store_bytes_128(to, vcombine_u8(low, high));
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn store_integers(to: &mut [i32; 16], sums: [Register; PARTS]) {
                for (to, sums) in to.as_chunks_mut().0.iter_mut().zip(sums) {
                    store_integers_128(to, sums);
                }
            }

            tiles!(#[target_feature(enable = $features)] rows: $rows, lines: [1]);
            $($products)*
        }
    };
}

/// Defines the sums of tiles by products of words with the words of channels, and the kernels of depthwise convolutions.
macro_rules! word_products {
    ($features:literal, $dot:ident) => {
        use crate::bytes::depthwise::{ByteDepthwise, WindowView};
        use crate::bytes::tiles::{blocks, chunk, dot_products, part};

        /// Number of lines for a word of a block.
        const BLOCK_LINES: usize = 1;
        /// Number of channels in a block.
        const WIDTH: usize = 16;

        #[target_feature(enable = $features)]
        #[inline]
        fn splat<const FLIP: bool>(word: [u8; 4]) -> int8x16_t {
            let flip = if FLIP { 0x8080_8080 } else { 0 };
            vreinterpretq_s8_u32(vdupq_n_u32(u32::from_ne_bytes(word) ^ flip))
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn interleaved<const FLIP: bool>(taps: [&[u8; WIDTH]; 4]) -> [[int8x16_t; PARTS]; BLOCK_LINES] {
            let [a, b, c, d] = taps;
            let (a, b) = (load_bytes_128(a), load_bytes_128(b));
            let (c, d) = (load_bytes_128(c), load_bytes_128(d));
            let low = vreinterpretq_u16_u8(vzip1q_u8(a, b));
            let high = vreinterpretq_u16_u8(vzip2q_u8(a, b));
            let lower = vreinterpretq_u16_u8(vzip1q_u8(c, d));
            let higher = vreinterpretq_u16_u8(vzip2q_u8(c, d));
            [[
                flipped::<FLIP>(vreinterpretq_u8_u16(vzip1q_u16(low, lower))),
                flipped::<FLIP>(vreinterpretq_u8_u16(vzip2q_u16(low, lower))),
                flipped::<FLIP>(vreinterpretq_u8_u16(vzip1q_u16(high, higher))),
                flipped::<FLIP>(vreinterpretq_u8_u16(vzip2q_u16(high, higher))),
            ]]
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn store_wide(
            to: &mut [u8; WIDTH],
            [sums]: [[Register; PARTS]; BLOCK_LINES],
            factors: &[[f32; 16]],
            limits: ByteLimits,
        ) {
            store_bytes(to, sums, &factors[0], limits);
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn dot(sums: Register, words: int8x16_t, weights: int8x16_t) -> Register {
            $dot(sums, words, weights)
        }

        dot_products!(#[target_feature(enable = $features)]);
        blocks!(#[target_feature(enable = $features)] taps: 4 [a b c d]);
    };
}

/// Defines the sums of tiles by products of two rows by two channels, eight inputs at a time.
macro_rules! matrix_products {
    (#[$attribute:meta]) => {
        /// Returns eight inputs of each of two rows.
        #[$attribute]
        #[inline]
        fn pair<const FLIP: bool>(first: &[[u8; 4]], second: &[[u8; 4]]) -> int8x16_t {
            flipped::<FLIP>(vcombine_u8(eight(first), eight(second)))
        }

        /// Returns eight inputs, of which the second half may be missing.
        #[$attribute]
        #[inline]
        fn eight(words: &[[u8; 4]]) -> uint8x8_t {
            let (low, high) = match words {
                [low, high, ..] => (*low, *high),
                [low] => (*low, [0; 4]),
                [] => ([0; 4], [0; 4]),
            };
            let low = vdup_n_u32(u32::from_ne_bytes(low));
            vreinterpret_u8_u32(vset_lane_u32::<1>(u32::from_ne_bytes(high), low))
        }

        /// Returns the weights of eight inputs, for two channels in each register.
        #[$attribute]
        #[inline]
        fn columns(first: &Line, second: &Line) -> [int8x16_t; 2 * PARTS] {
            let (first, second) = (weights(first), weights(second));
            let mut columns = [vdupq_n_s8(0); 2 * PARTS];
            for part in 0..PARTS {
                let a = vreinterpretq_s32_s8(first[part]);
                let b = vreinterpretq_s32_s8(second[part]);
                columns[2 * part] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
                columns[2 * part + 1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
            }
            columns
        }

        #[$attribute]
        #[inline]
        fn products<const ROWS: usize, const LINES: usize, const FLIP: bool>(
            dense: &Dense,
            panel: &BytePanel<'_>,
            slices: &[&[[u8; 4]]],
            finished: &mut [[[i32; CHANNELS]; LINES]; ROWS],
        ) {
            const { assert!(LINES == 1, "panels of one line") };
            let steps = dense.steps;
            // An odd last row is multiplied twice.
            let second = |row: usize| (row + 1).min(ROWS - 1);
            let bias = integers(&panel.bias[0]);
            let mut start = [zero(); 2 * PARTS];
            for part in 0..PARTS {
                let (low, high) = (vget_low_s32(bias[part]), vget_high_s32(bias[part]));
                start[2 * part] = vcombine_s32(low, low);
                start[2 * part + 1] = vcombine_s32(high, high);
            }
            // Only those of even rows are used.
            let mut sums = [start; ROWS];
            let nothing = Line([0; 64]);
            let taps = slices
                .chunks_exact(ROWS)
                .zip(panel.weights.chunks_exact(steps));
            for (rows, lines) in taps {
                let inputs = panel.offset..panel.offset + steps;
                let mut words = [&rows[0][inputs.clone()]; ROWS];
                for row in 1..ROWS {
                    words[row] = &rows[row][inputs.clone()];
                }
                for (two, lines) in lines.chunks(2).enumerate() {
                    let packed = columns(&lines[0], lines.get(1).unwrap_or(&nothing));
                    for row in (0..ROWS).step_by(2) {
                        let inputs =
                            pair::<FLIP>(&words[row][2 * two..], &words[second(row)][2 * two..]);
                        for column in 0..2 * PARTS {
                            sums[row][column] =
                                multiply_matrices_128(sums[row][column], inputs, packed[column]);
                        }
                    }
                }
            }
            for row in (0..ROWS).step_by(2) {
                let (mut upper, mut lower) = ([zero(); PARTS], [zero(); PARTS]);
                for part in 0..PARTS {
                    let (a, b) = (sums[row][2 * part], sums[row][2 * part + 1]);
                    upper[part] = vcombine_s32(vget_low_s32(a), vget_low_s32(b));
                    lower[part] = vcombine_s32(vget_high_s32(a), vget_high_s32(b));
                }
                store_integers(&mut finished[row][0], upper);
                store_integers(&mut finished[second(row)][0], lower);
            }
        }
    };
}

of_128_bits!(matrix, "neon,dotprod,i8mm", rows: [1 2 3 4 5 6], {
    matrix_products!(#[target_feature(enable = "neon,dotprod,i8mm")]);
});
of_128_bits!(dot, "neon,dotprod", rows: [1 2 3 4 5 6], {
    word_products!("neon,dotprod", dot_bytes_128);
});
of_128_bits!(pairs, "neon", rows: [1 2 3 4], {
    word_products!("neon", dot_pairs_128);
});
