//! aarch64 registers of the byte kernels. Dot products multiply signed bytes.

/// Defines operations on 128-bit registers, and the kernels on them.
macro_rules! of_128_bits {
    ($name:ident, $features:literal, rows: $rows:tt, { $($dot:tt)* }) => {
        #[doc = concat!("Registers of 128 bits with ", $features, ".")]
        pub(super) mod $name {
            use std::arch::aarch64::*;

            use crate::bytes::ByteLimits;
            use crate::bytes::dense::{BytePanel, Dense, DenseRows, Part};
            use crate::bytes::depthwise::{ByteDepthwise, WindowView};
            use crate::bytes::tiles::{CHANNELS, Line, TilePlace, TileTarget, blocks, chunk, part, tiles};
            use crate::simd::arm::*;

            /// Sums of 4 channels.
            type Register = int32x4_t;
            /// Number of registers for a line of weights.
            const PARTS: usize = 4;
            /// Number of lines for the weights of four taps.
            const QUAD: usize = 1;
            /// Number of channels in a block.
            const WIDTH: usize = 16;

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
            fn splat<const FLIP: bool>(word: [u8; 4]) -> int8x16_t {
                let flip = if FLIP { 0x8080_8080 } else { 0 };
                vreinterpretq_s8_u32(vdupq_n_u32(u32::from_ne_bytes(word) ^ flip))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn interleaved<const FLIP: bool>(taps: [&[u8; WIDTH]; 4]) -> [[int8x16_t; PARTS]; QUAD] {
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
            fn store_wide(
                to: &mut [u8; WIDTH],
                [sums]: [[Register; PARTS]; QUAD],
                factors: &[[f32; 16]],
                limits: ByteLimits,
            ) {
                store_bytes(to, sums, &factors[0], limits);
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn store_integers(to: &mut [i32; 16], sums: [Register; PARTS]) {
                for (to, sums) in to.as_chunks_mut().0.iter_mut().zip(sums) {
                    store_integers_128(to, sums);
                }
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn dot(sums: Register, words: int8x16_t, weights: int8x16_t) -> Register {
                $($dot)*(sums, words, weights)
            }

            tiles!(#[target_feature(enable = $features)] rows: $rows, lines: [1]);
            blocks!(#[target_feature(enable = $features)]);
        }
    };
}

of_128_bits!(dot, "neon,dotprod", rows: [1 2 3 4 5 6], { dot_bytes_128 });
of_128_bits!(pairs, "neon", rows: [1 2 3 4], { dot_pairs_128 });
