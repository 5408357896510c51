//! aarch64 registers of the row kernels. Their dot products multiply signed bytes: 4-bit weights
//! fit with 8 added, 8-bit weights are converted back to signed bytes.

/// Defines operations on 128-bit registers, and the kernels on them.
macro_rules! of_128_bits {
    ($name:ident, $features:literal, $dot:ident, $dot_small:path) => {
        #[doc = concat!("Registers of 128 bits with ", $features, ".")]
        pub(super) mod $name {
            use std::arch::aarch64::*;

            use crate::simd::arm::*;

            type Ints = int32x4_t;
            type Floats = float32x4_t;
            const LANES: usize = 4;

            crate::rows::loops::loops!(
                #[target_feature(enable = $features)]
                6,
                2,
                4
            );

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

of_128_bits!(dot, "neon,dotprod", dot_bytes_128, dot_bytes_128);
of_128_bits!(pairs, "neon", dot_pairs_128, super::dot_of_small);
