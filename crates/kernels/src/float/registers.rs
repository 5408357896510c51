//! Common operations on the float registers of each instruction set, from which the kernels are
//! built.
//!
//! Each module defines `Register`, `LANES` (numbers in a register), `load`, `store`, `splat`,
//! `fused` (`a * b + sum`), `lane` (`weights * four[LANE] + sum`), `add` and `clamp`, which keeps
//! NaN. `load_half` and `load_brain` load numbers of 16 bits.

/// Defines functions compiled with target features.
macro_rules! functions {
    ($features:literal; $($name:ident($($argument:ident: $type:ty),*) = $body:expr;)*) => {
        $(
            #[inline]
            #[target_feature(enable = $features)]
            pub(in crate::float) fn $name($($argument: $type),*) -> Register {
                $body
            }
        )*
    };
}

/// 8 numbers.
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::{
        __m256, _mm256_add_ps, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps,
        _mm256_fmadd_ps, _mm256_max_ps, _mm256_min_ps, _mm256_set1_ps, _mm256_slli_epi32,
    };

    pub(in crate::float) use crate::simd::x86::{
        load_floats_256 as load, load_halves_128, store_floats_256 as store,
    };

    pub(in crate::float) type Register = __m256;
    pub(in crate::float) const LANES: usize = 8;

    // The minimum and maximum instructions return their second operand if either is NaN.
    functions! { "avx2,fma";
        splat(value: f32) = _mm256_set1_ps(value);
        fused(a: Register, b: Register, sum: Register) = _mm256_fmadd_ps(a, b, sum);
        add(a: Register, b: Register) = _mm256_add_ps(a, b);
        clamp(value: Register, least: Register, most: Register) = _mm256_min_ps(most, _mm256_max_ps(least, value));
        load_brain(from: &[u16; LANES]) = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load_halves_128(from))));
    }
    functions! { "avx2,fma,f16c";
        load_half(from: &[u16; LANES]) = _mm256_cvtph_ps(load_halves_128(from));
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    #[expect(clippy::cast_sign_loss, reason = "a lane is 0 to 3")]
    pub(in crate::float) fn lane<const LANE: i32>(
        four: &[f32; 4],
        weights: Register,
        sum: Register,
    ) -> Register {
        fused(splat(four[LANE as usize]), weights, sum)
    }
}

/// 16 numbers.
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512 {
    use std::arch::x86_64::{
        __m512, _mm512_add_ps, _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_cvtph_ps,
        _mm512_fmadd_ps, _mm512_max_ps, _mm512_min_ps, _mm512_set1_ps, _mm512_slli_epi32,
    };

    pub(in crate::float) use crate::simd::x86::{
        load_floats_512 as load, load_halves_256, store_floats_512 as store,
    };

    pub(in crate::float) type Register = __m512;
    pub(in crate::float) const LANES: usize = 16;

    // The minimum and maximum instructions return their second operand if either is NaN.
    functions! { "avx512f,avx512bw,avx512dq,avx512vl";
        splat(value: f32) = _mm512_set1_ps(value);
        fused(a: Register, b: Register, sum: Register) = _mm512_fmadd_ps(a, b, sum);
        add(a: Register, b: Register) = _mm512_add_ps(a, b);
        clamp(value: Register, least: Register, most: Register) = _mm512_min_ps(most, _mm512_max_ps(least, value));
        load_brain(from: &[u16; LANES]) = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(load_halves_256(from))));
        load_half(from: &[u16; LANES]) = _mm512_cvtph_ps(load_halves_256(from));
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[expect(clippy::cast_sign_loss, reason = "a lane is 0 to 3")]
    pub(in crate::float) fn lane<const LANE: i32>(
        four: &[f32; 4],
        weights: Register,
        sum: Register,
    ) -> Register {
        fused(splat(four[LANE as usize]), weights, sum)
    }
}

/// 4 numbers.
#[cfg(target_arch = "aarch64")]
pub(super) mod neon {
    use std::arch::aarch64::{
        float32x4_t, vaddq_f32, vdupq_n_f32, vfmaq_f32, vfmaq_laneq_f32, vmaxq_f32, vminq_f32,
        vreinterpretq_f32_u32, vshll_n_u16,
    };

    pub(in crate::float) use crate::simd::arm::{
        load_floats_128 as load, load_halves_64, store_floats_128 as store, widen_halves_64,
    };

    pub(in crate::float) type Register = float32x4_t;
    pub(in crate::float) const LANES: usize = 4;

    functions! { "neon";
        splat(value: f32) = vdupq_n_f32(value);
        fused(a: Register, b: Register, sum: Register) = vfmaq_f32(sum, a, b);
        add(a: Register, b: Register) = vaddq_f32(a, b);
        clamp(value: Register, least: Register, most: Register) = vminq_f32(most, vmaxq_f32(least, value));
        load_brain(from: &[u16; LANES]) = vreinterpretq_f32_u32(vshll_n_u16::<16>(load_halves_64(from)));
        load_half(from: &[u16; LANES]) = widen_halves_64(load_halves_64(from));
    }

    #[inline]
    #[target_feature(enable = "neon")]
    pub(in crate::float) fn lane<const LANE: i32>(
        four: &[f32; 4],
        weights: Register,
        sum: Register,
    ) -> Register {
        vfmaq_laneq_f32::<LANE>(sum, weights, load(four))
    }
}

/// 4 numbers in an array, which the compiler can keep in registers.
pub(super) mod plain {
    pub(in crate::float) type Register = [f32; 4];
    pub(in crate::float) const LANES: usize = 4;

    #[inline]
    pub(in crate::float) fn load(from: &[f32; LANES]) -> Register {
        *from
    }

    #[inline]
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as for other registers")]
    pub(in crate::float) fn load_half(from: &[u16; LANES]) -> Register {
        from.map(crate::float::half::half_number)
    }

    #[inline]
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as for other registers")]
    pub(in crate::float) fn load_brain(from: &[u16; LANES]) -> Register {
        from.map(crate::float::half::brain_number)
    }

    #[inline]
    pub(in crate::float) fn store(into: &mut [f32; LANES], value: Register) {
        *into = value;
    }

    #[inline]
    pub(in crate::float) fn splat(value: f32) -> Register {
        [value; LANES]
    }

    #[inline]
    pub(in crate::float) fn fused(a: Register, b: Register, sum: Register) -> Register {
        std::array::from_fn(|lane| a[lane] * b[lane] + sum[lane])
    }

    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "a lane is 0 to 3")]
    pub(in crate::float) fn lane<const LANE: i32>(
        four: &[f32; 4],
        weights: Register,
        sum: Register,
    ) -> Register {
        fused(splat(four[LANE as usize]), weights, sum)
    }

    #[inline]
    pub(in crate::float) fn add(a: Register, b: Register) -> Register {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    #[inline]
    pub(in crate::float) fn clamp(value: Register, least: Register, most: Register) -> Register {
        std::array::from_fn(|lane| {
            let value = if value[lane] < least[lane] {
                least[lane]
            } else {
                value[lane]
            };
            if value > most[lane] {
                most[lane]
            } else {
                value
            }
        })
    }
}
