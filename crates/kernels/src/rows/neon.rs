//! aarch64 registers of the row kernels. Their dot products multiply signed bytes: 4-bit weights
//! fit with 8 added, 8-bit weights are converted back to signed bytes.

/// Defines operations on 128-bit registers, and the kernels on them.
macro_rules! of_128_bits {
    ($name:ident, $features:literal, $dot:ident, $dot_small:path, $products:ident $($more:tt)*) => {
        #[doc = concat!("Registers of 128 bits with ", $features, ".")]
        pub(super) mod $name {
            use std::arch::aarch64::*;

            use crate::simd::arm::*;

            type Ints = int32x4_t;
            type Floats = float32x4_t;
            const LANES: usize = 4;

            crate::rows::byte_tiles::inputs_of_bytes!(#[target_feature(enable = $features)]);
            crate::rows::loops::loops!(
                #[target_feature(enable = $features)]
                6,
                2,
                4,
                $products
            );
            $($more)*

            #[target_feature(enable = $features)]
            #[inline]
            fn ints(x: i32) -> Ints {
                vdupq_n_s32(x)
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn floats(x: f32) -> Floats {
                vdupq_n_f32(x)
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn weights(step: &PanelStep, at: usize) -> Ints {
                vreinterpretq_s32_u8(load_bytes_128(&step.0.as_chunks().0[at]))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn read_ints(lanes: &PanelLanes<i32>, at: usize) -> Ints {
                load_integers_128(&lanes.as_chunks().0[at])
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn read(lanes: &PanelLanes<f32>, at: usize) -> Floats {
                load_floats_128(&lanes.as_chunks().0[at])
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn write(lanes: &mut PanelLanes<f32>, at: usize, x: Floats) {
                store_floats_128(&mut lanes.as_chunks_mut().0[at], x);
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn low(x: Ints) -> Ints {
                vreinterpretq_s32_u8(vandq_u8(vreinterpretq_u8_s32(x), vdupq_n_u8(15)))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn high(x: Ints) -> Ints {
                vreinterpretq_s32_u8(vshrq_n_u8::<4>(vreinterpretq_u8_s32(x)))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn part(x: Ints, shift: i32, mask: i32) -> Floats {
                let moved = vshlq_s32(x, vdupq_n_s32(-shift));
                vcvtq_f32_s32(vandq_s32(moved, vdupq_n_s32(mask)))
            }

            /// Returns the offset added to weights during multiplication.
            const fn offset(bits: Bits) -> i32 {
                match bits {
                    Bits::Four => bits.offset(),
                    Bits::Eight => 0,
                }
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn dot(sum: Ints, unsigned: Ints, signed: Ints) -> Ints {
                let weights = veorq_u8(vreinterpretq_u8_s32(unsigned), vdupq_n_u8(0x80));
                let (left, right) = (vreinterpretq_s8_u8(weights), vreinterpretq_s8_s32(signed));
                $dot(sum, left, right)
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn dot_small(sum: Ints, unsigned: Ints, signed: Ints) -> Ints {
                let (left, right) = (vreinterpretq_s8_s32(unsigned), vreinterpretq_s8_s32(signed));
                $dot_small(sum, left, right)
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn add_ints(a: Ints, b: Ints) -> Ints {
                vaddq_s32(a, b)
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn multiply_ints(a: Ints, b: Ints) -> Ints {
                vmulq_s32(a, b)
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn real(x: Ints) -> Floats {
                vcvtq_f32_s32(x)
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn multiply(a: Floats, b: Floats) -> Floats {
                vmulq_f32(a, b)
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn multiply_add(a: Floats, b: Floats, c: Floats) -> Floats {
                vfmaq_f32(c, a, b)
            }
        }
    };
}

/// Adds products of bytes, one of which is below 16: the sum of two products fits into 16 bits.
#[target_feature(enable = "neon")]
#[inline]
fn dot_of_small(
    sums: std::arch::aarch64::int32x4_t,
    small: std::arch::aarch64::int8x16_t,
    bytes: std::arch::aarch64::int8x16_t,
) -> std::arch::aarch64::int32x4_t {
    use std::arch::aarch64::{vget_low_s8, vmull_high_s8, vmull_s8, vpadalq_s16, vpaddq_s16};
    let low = vmull_s8(vget_low_s8(small), vget_low_s8(bytes));
    vpadalq_s16(sums, vpaddq_s16(low, vmull_high_s8(small, bytes)))
}

/// Defines products of two rows by two outputs, eight inputs at a time.
macro_rules! matrix_products {
    (#[$attribute:meta]) => {
        /// Returns the weights of eight inputs, for two outputs in each register.
        #[$attribute]
        #[inline]
        fn columns<const FOUR: bool>(
            steps: &[PanelStep],
            octet: usize,
            register: usize,
        ) -> [int8x16_t; 2] {
            let (first, second) = if FOUR {
                let both = weights(&steps[octet], register);
                (low(both), high(both))
            } else {
                let signs = vdupq_n_s32(i32::from_ne_bytes([0x80; 4]));
                let (first, second) = (&steps[2 * octet], &steps[2 * octet + 1]);
                (
                    veorq_s32(weights(first, register), signs),
                    veorq_s32(weights(second, register), signs),
                )
            };
            [
                vreinterpretq_s8_s32(vzip1q_s32(first, second)),
                vreinterpretq_s8_s32(vzip2q_s32(first, second)),
            ]
        }

        /// Adds the products of a group's inputs and weights.
        #[$attribute]
        #[inline]
        fn matrix_products<const FOUR: bool, const M: usize, const N: usize>(
            steps: &[PanelStep],
            register: usize,
            inputs: [&[[i32; 2]]; M],
            mut sums: [[Ints; N]; M],
        ) -> [[Ints; N]; M] {
            if M == 1 {
                return dot_products::<FOUR, M, N>(steps, register, inputs, sums);
            }
            let octets = if FOUR { steps.len() } else { steps.len() / 2 };
            let inputs = equally_long(inputs, octets);
            // An odd last row is multiplied twice. Only the sums of even rows are used.
            let second = |row: usize| (row + 1).min(M - 1);
            let mut pairs = [[[ints(0); 2]; N]; M];
            for octet in 0..octets {
                let mut packed = [[vdupq_n_s8(0); 2]; N];
                for n in 0..N {
                    packed[n] = columns::<FOUR>(steps, octet, register + n);
                }
                for row in (0..M).step_by(2) {
                    let ([a, b], [c, d]) = (inputs[row][octet], inputs[second(row)][octet]);
                    let both = vreinterpretq_s8_s32(load_integers_128(&[a, b, c, d]));
                    for n in 0..N {
                        for half in 0..2 {
                            pairs[row][n][half] =
                                multiply_matrices_128(pairs[row][n][half], both, packed[n][half]);
                        }
                    }
                }
            }
            for row in (0..M).step_by(2) {
                for n in 0..N {
                    let [a, b] = pairs[row][n];
                    let upper = vcombine_s32(vget_low_s32(a), vget_low_s32(b));
                    sums[row][n] = add_ints(sums[row][n], upper);
                    if row + 1 < M {
                        let lower = vcombine_s32(vget_high_s32(a), vget_high_s32(b));
                        sums[row + 1][n] = add_ints(sums[row + 1][n], lower);
                    }
                }
            }
            sums
        }
    };
}

of_128_bits!(
    matrix, "neon,dotprod,i8mm", dot_bytes_128, dot_bytes_128, matrix_products
    matrix_products!(#[target_feature(enable = "neon,dotprod,i8mm")]);
);
of_128_bits!(
    dot,
    "neon,dotprod",
    dot_bytes_128,
    dot_bytes_128,
    dot_products
);
of_128_bits!(
    pairs,
    "neon",
    dot_pairs_128,
    super::dot_of_small,
    dot_products
);
