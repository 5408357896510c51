//! Products of rows with low-bit weights for each kind of register.
//!
//! A tile is a few rows by a few registers of a panel. Each module here and in `neon.rs` defines
//! the instructions. The algorithms are shared (`loops`, `byte_tiles`, `real_tiles`).

use super::super::Cpu;
use super::super::cpu::Level;
use super::super::simd;
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::panels::PanelLanes;
use super::work::RowWork;

/// Computes panels starting at `first`. The output is ordered by panels, then rows.
pub(super) fn panels(cpu: Cpu, work: &RowWork<'_>, first: usize, output: &mut [PanelLanes<f32>]) {
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => simd::inside!(
            "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
            avx512_vnni::panels,
            work: &RowWork<'_>,
            first: usize,
            output: &mut [PanelLanes<f32>]
        ),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => simd::inside!(
            "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl",
            avx512::panels,
            work: &RowWork<'_>,
            first: usize,
            output: &mut [PanelLanes<f32>]
        ),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2Vnni => simd::inside!(
            "avx2,fma,avxvnni",
            avx2_vnni::panels,
            work: &RowWork<'_>,
            first: usize,
            output: &mut [PanelLanes<f32>]
        ),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => simd::inside!(
            "avx2,fma",
            avx2::panels,
            work: &RowWork<'_>,
            first: usize,
            output: &mut [PanelLanes<f32>]
        ),
        #[cfg(target_arch = "aarch64")]
        Level::NeonMatrix => simd::inside!(
            "neon,dotprod,i8mm",
            neon::matrix::panels,
            work: &RowWork<'_>,
            first: usize,
            output: &mut [PanelLanes<f32>]
        ),
        #[cfg(target_arch = "aarch64")]
        Level::NeonDot => simd::inside!(
            "neon,dotprod",
            neon::dot::panels,
            work: &RowWork<'_>,
            first: usize,
            output: &mut [PanelLanes<f32>]
        ),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => simd::inside!(
            "neon",
            neon::pairs::panels,
            work: &RowWork<'_>,
            first: usize,
            output: &mut [PanelLanes<f32>]
        ),
        _ => plain::panels(work, first, output),
    }
}

/// Defines functions on registers from the names of their instructions.
#[cfg(target_arch = "x86_64")]
macro_rules! registers {
    (
        $(#[$attribute:meta])* $ints:ty, $floats:ty, $lanes:literal, $bytes:literal,
        $set_int:ident $set_float:ident $load_bytes:path, $load:path, $store:path,
        $and:ident $shift:ident $shift_by:ident $add:ident $multiply_int:ident,
        $convert:ident $multiply:ident $multiply_add:ident
    ) => {
        type Ints = $ints;
        type Floats = $floats;
        const LANES: usize = $lanes;

        #[inline]
        $(#[$attribute])*
        fn ints(x: i32) -> Ints {
            $set_int(x)
        }

        #[inline]
        $(#[$attribute])*
        fn floats(x: f32) -> Floats {
            $set_float(x)
        }

        #[inline]
        $(#[$attribute])*
        fn weights(step: &PanelStep, at: usize) -> Ints {
            $load_bytes(&step.0.as_chunks::<$bytes>().0[at])
        }

        #[inline]
        $(#[$attribute])*
        fn read_ints(lanes: &PanelLanes<i32>, at: usize) -> Ints {
            let mut bytes = [0; $bytes];
            let lanes = &lanes.as_chunks::<$lanes>().0[at];
            for (bytes, lane) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(lanes) {
                *bytes = lane.to_le_bytes();
            }
            $load_bytes(&bytes)
        }

        #[inline]
        $(#[$attribute])*
        fn read(lanes: &PanelLanes<f32>, at: usize) -> Floats {
            $load(&lanes.as_chunks::<$lanes>().0[at])
        }

        #[inline]
        $(#[$attribute])*
        fn write(lanes: &mut PanelLanes<f32>, at: usize, x: Floats) {
            $store(&mut lanes.as_chunks_mut::<$lanes>().0[at], x);
        }

        #[inline]
        $(#[$attribute])*
        fn low(x: Ints) -> Ints {
            $and(x, $set_int(0x0f0f_0f0f))
        }

        #[inline]
        $(#[$attribute])*
        fn high(x: Ints) -> Ints {
            $and($shift::<4>(x), $set_int(0x0f0f_0f0f))
        }

        #[inline]
        $(#[$attribute])*
        fn part(x: Ints, shift: i32, mask: i32) -> Floats {
            $convert($and($shift_by(x, $set_int(shift)), $set_int(mask)))
        }

        /// Returns the offset added to weights during multiplication.
        const fn offset(bits: Bits) -> i32 {
            bits.offset()
        }

        #[inline]
        $(#[$attribute])*
        fn add_ints(a: Ints, b: Ints) -> Ints {
            $add(a, b)
        }

        #[inline]
        $(#[$attribute])*
        fn multiply_ints(a: Ints, b: Ints) -> Ints {
            $multiply_int(a, b)
        }

        #[inline]
        $(#[$attribute])*
        fn real(x: Ints) -> Floats {
            $convert(x)
        }

        #[inline]
        $(#[$attribute])*
        fn multiply(a: Floats, b: Floats) -> Floats {
            $multiply(a, b)
        }

        #[inline]
        $(#[$attribute])*
        fn multiply_add(a: Floats, b: Floats, c: Floats) -> Floats {
            $multiply_add(a, b, c)
        }
    };
}

/// Defines 512-bit registers.
#[cfg(target_arch = "x86_64")]
macro_rules! wide {
    ($(#[$attribute:meta])*) => {
        use std::arch::x86_64::*;

        registers!(
            $(#[$attribute])* __m512i, __m512, 16, 64,
            _mm512_set1_epi32 _mm512_set1_ps crate::simd::x86::load_bytes_512,
            crate::simd::x86::load_floats_512, crate::simd::x86::store_floats_512,
            _mm512_and_si512 _mm512_srli_epi32 _mm512_srlv_epi32 _mm512_add_epi32 _mm512_mullo_epi32,
            _mm512_cvtepi32_ps _mm512_mul_ps _mm512_fmadd_ps
        );
        crate::rows::loops::loops!($(#[$attribute])* 6, 2, 2, dot_products);
    };
}

/// Defines 256-bit registers.
#[cfg(target_arch = "x86_64")]
macro_rules! narrow {
    ($(#[$attribute:meta])*) => {
        use std::arch::x86_64::*;

        registers!(
            $(#[$attribute])* __m256i, __m256, 8, 32,
            _mm256_set1_epi32 _mm256_set1_ps crate::simd::x86::load_bytes_256,
            crate::simd::x86::load_floats_256, crate::simd::x86::store_floats_256,
            _mm256_and_si256 _mm256_srli_epi32 _mm256_srlv_epi32 _mm256_add_epi32 _mm256_mullo_epi32,
            _mm256_cvtepi32_ps _mm256_mul_ps _mm256_fmadd_ps
        );
        crate::rows::loops::loops!($(#[$attribute])* 3, 2, 4, dot_products);
    };
}

/// Defines a sum plus four products of bytes, by a single instruction.
#[cfg(target_arch = "x86_64")]
macro_rules! byte_dots {
    ($(#[$attribute:meta])* $dot:ident) => {
        crate::rows::byte_tiles::inputs_of_bytes!($(#[$attribute])*);

        #[inline]
        $(#[$attribute])*
        fn dot(sum: Ints, unsigned: Ints, signed: Ints) -> Ints {
            $dot(sum, unsigned, signed)
        }

        #[inline]
        $(#[$attribute])*
        fn dot_small(sum: Ints, unsigned: Ints, signed: Ints) -> Ints {
            $dot(sum, unsigned, signed)
        }
    };
}

/// Defines a sum plus four products of bytes, by 16-bit products.
///
/// Even and odd bytes are widened, multiplied and added in pairs, without saturation; the inputs are
/// stored that way. Unsigned bytes up to 15 need no widening: the sum of two products fits into 16
/// bits.
#[cfg(target_arch = "x86_64")]
macro_rules! pair_dots {
    (
        $(#[$attribute:meta])* $and:ident $set:ident $right:ident,
        $pairs:ident $byte_pairs:ident $add:ident
    ) => {
        /// Four inputs: the even and the odd ones in 16 bits, or all in the first register.
        type Signed = [Ints; 2];

        /// Returns the number of pairs of integers that eight inputs are packed into.
        const fn pairs_of_octet<const FOUR: bool>() -> usize {
            if FOUR { 1 } else { 2 }
        }

        /// Returns eight inputs of a row.
        #[inline]
        $(#[$attribute])*
        fn inputs_of<const FOUR: bool>(row: &[[i32; 2]], octet: usize) -> [Signed; 2] {
            if FOUR {
                let [a, b] = row[octet];
                return [[ints(a); 2], [ints(b); 2]];
            }
            let ([a, b], [c, d]) = (row[2 * octet], row[2 * octet + 1]);
            [[ints(a), ints(b)], [ints(c), ints(d)]]
        }

        #[inline]
        $(#[$attribute])*
        fn dot(sum: Ints, unsigned: Ints, [even, odd]: Signed) -> Ints {
            let sum = $add(sum, $pairs($and(unsigned, $set(255)), even));
            $add(sum, $pairs($right::<8>(unsigned), odd))
        }

        #[inline]
        $(#[$attribute])*
        fn dot_small(sum: Ints, unsigned: Ints, [signed, _]: Signed) -> Ints {
            let pairs = $byte_pairs(unsigned, signed);
            $add(sum, $pairs(pairs, $set(1)))
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx512_vnni {
    wide!(#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]);
    byte_dots!(
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        _mm512_dpbusd_epi32
    );
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    wide!(#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]);
    pair_dots!(
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
        _mm512_and_si512 _mm512_set1_epi16 _mm512_srli_epi16,
        _mm512_madd_epi16 _mm512_maddubs_epi16 _mm512_add_epi32
    );
}

#[cfg(target_arch = "x86_64")]
mod avx2_vnni {
    narrow!(#[target_feature(enable = "avx2,fma,avxvnni")]);
    byte_dots!(
        #[target_feature(enable = "avx2,fma,avxvnni")]
        _mm256_dpbusd_avx_epi32
    );
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    narrow!(#[target_feature(enable = "avx2,fma")]);
    pair_dots!(
        #[target_feature(enable = "avx2,fma")]
        _mm256_and_si256 _mm256_set1_epi16 _mm256_srli_epi16,
        _mm256_madd_epi16 _mm256_maddubs_epi16 _mm256_add_epi32
    );
}

mod plain {
    const LANES: usize = 8;
    type Ints = [i32; LANES];
    type Floats = [f32; LANES];

    crate::rows::byte_tiles::inputs_of_bytes!();
    crate::rows::loops::loops!(1, 4, 4, dot_products);

    fn ints(x: i32) -> Ints {
        [x; LANES]
    }

    fn floats(x: f32) -> Floats {
        [x; LANES]
    }

    fn weights(step: &PanelStep, at: usize) -> Ints {
        let (words, _) = step.0.as_chunks::<4>();
        words.as_chunks::<LANES>().0[at].map(i32::from_le_bytes)
    }

    fn read_ints(lanes: &PanelLanes<i32>, at: usize) -> Ints {
        lanes.as_chunks::<LANES>().0[at]
    }

    fn read(lanes: &PanelLanes<f32>, at: usize) -> Floats {
        lanes.as_chunks::<LANES>().0[at]
    }

    fn write(lanes: &mut PanelLanes<f32>, at: usize, x: Floats) {
        lanes.as_chunks_mut::<LANES>().0[at] = x;
    }

    fn low(x: Ints) -> Ints {
        x.map(|x| x & 0x0f0f_0f0f)
    }

    fn high(x: Ints) -> Ints {
        x.map(|x| (x >> 4) & 0x0f0f_0f0f)
    }

    #[expect(clippy::cast_precision_loss, reason = "a byte")]
    fn part(x: Ints, shift: i32, mask: i32) -> Floats {
        x.map(|x| ((x >> shift) & mask) as f32)
    }

    /// Returns the offset added to weights during multiplication.
    const fn offset(bits: Bits) -> i32 {
        bits.offset()
    }

    fn dot(mut sum: Ints, unsigned: Ints, signed: Ints) -> Ints {
        for byte in 0..4 {
            for ((sum, unsigned), signed) in sum.iter_mut().zip(unsigned).zip(signed) {
                let weight = (unsigned >> (8 * byte)) & 255;
                let input = (signed << (24 - 8 * byte)) >> 24;
                *sum = sum.wrapping_add(weight * input);
            }
        }
        sum
    }

    fn dot_small(sum: Ints, unsigned: Ints, signed: Ints) -> Ints {
        dot(sum, unsigned, signed)
    }

    fn add_ints(mut a: Ints, b: Ints) -> Ints {
        for (a, b) in a.iter_mut().zip(b) {
            *a = a.wrapping_add(b);
        }
        a
    }

    fn multiply_ints(mut a: Ints, b: Ints) -> Ints {
        for (a, b) in a.iter_mut().zip(b) {
            *a = a.wrapping_mul(b);
        }
        a
    }

    #[expect(clippy::cast_precision_loss, reason = "as XNNPACK rounds")]
    fn real(x: Ints) -> Floats {
        x.map(|x| x as f32)
    }

    fn multiply(mut a: Floats, b: Floats) -> Floats {
        for (a, b) in a.iter_mut().zip(b) {
            *a *= b;
        }
        a
    }

    fn multiply_add(a: Floats, b: Floats, mut c: Floats) -> Floats {
        for ((a, b), c) in a.into_iter().zip(b).zip(&mut c) {
            *c += a * b;
        }
        c
    }
}
