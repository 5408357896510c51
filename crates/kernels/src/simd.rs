//! The only `unsafe` code of the kernels: register loads and stores, and calls of code compiled for
//! detected instruction sets.
//!
//! Invariant: no function here can be misused from safe code. Loads and stores take arrays of the
//! register's size, and [`enter`] takes a [`Cpu`](super::Cpu) as proof that the processor supports
//! the instructions.

/// Defines loads of whole registers from arrays of their size, and stores.
macro_rules! moves {
    ($($features:literal {
        $(read $load:ident($from:ty) -> $loaded:ty = $read:ident as $source:ty;)*
        $(write $store:ident($to:ty, $stored:ty) = $write:ident as $target:ty;)*
    })*) => {
        $($(
            #[doc = concat!("The register of these elements: `", stringify!($read), "`.")]
            #[target_feature(enable = $features)]
            #[inline]
            #[allow(clippy::cast_ptr_alignment, reason = "the instruction needs no alignment")]
            #[expect(unsafe_code, reason = "the array is as large as the register, and needs no alignment")]
            pub(crate) fn $load(from: &$from) -> $loaded {
                // SAFETY: as many bytes can be read there, and none need be aligned.
                unsafe { $read(std::ptr::from_ref(from).cast::<$source>()) }
            }
        )*
        $(
            #[doc = concat!("Writes the register's elements: `", stringify!($write), "`.")]
            #[target_feature(enable = $features)]
            #[inline]
            #[allow(clippy::cast_ptr_alignment, reason = "the instruction needs no alignment")]
            #[expect(unsafe_code, reason = "the array is as large as the register, and needs no alignment")]
            pub(crate) fn $store(to: &mut $to, register: $stored) {
                // SAFETY: as many bytes can be written there, and none need be aligned.
                unsafe { $write(std::ptr::from_mut(to).cast::<$target>(), register) }
            }
        )*)*
    };
}

/// Registers of x86-64.
#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256, __m256i, __m512, __m512i, _mm_loadu_si128, _mm_storeu_si128,
        _mm256_loadu_ps, _mm256_loadu_si256, _mm256_storeu_ps, _mm256_storeu_si256,
        _mm512_loadu_ps, _mm512_loadu_si512, _mm512_storeu_ps, _mm512_storeu_si512,
    };

    moves! {
        "avx2" {
            read load_halves_128([u16; 8]) -> __m128i = _mm_loadu_si128 as __m128i;
            read load_halves_256([u16; 16]) -> __m256i = _mm256_loadu_si256 as __m256i;
            read load_bytes_256([u8; 32]) -> __m256i = _mm256_loadu_si256 as __m256i;
            read load_integers_256([i32; 8]) -> __m256i = _mm256_loadu_si256 as __m256i;
            read load_floats_256([f32; 8]) -> __m256 = _mm256_loadu_ps as f32;
            write store_floats_256([f32; 8], __m256) = _mm256_storeu_ps as f32;
            write store_bytes_128([u8; 16], __m128i) = _mm_storeu_si128 as __m128i;
            write store_bytes_256([u8; 32], __m256i) = _mm256_storeu_si256 as __m256i;
            write store_integers_256([i32; 8], __m256i) = _mm256_storeu_si256 as __m256i;
        }
        "avx512f" {
            read load_bytes_512([u8; 64]) -> __m512i = _mm512_loadu_si512 as __m512i;
            read load_integers_512([i32; 16]) -> __m512i = _mm512_loadu_si512 as __m512i;
            read load_floats_512([f32; 16]) -> __m512 = _mm512_loadu_ps as f32;
            write store_floats_512([f32; 16], __m512) = _mm512_storeu_ps as f32;
            write store_bytes_512([u8; 64], __m512i) = _mm512_storeu_si512 as __m512i;
            write store_integers_512([i32; 16], __m512i) = _mm512_storeu_si512 as __m512i;
        }
    }
}

/// Registers of aarch64.
#[cfg(target_arch = "aarch64")]
pub(super) mod arm {
    use std::arch::aarch64::{
        float32x4_t, int8x16_t, int32x4_t, uint8x16_t, uint16x4_t, vaddq_s32, vget_low_s8,
        vld1_u16, vld1q_f32, vld1q_s32, vld1q_u8, vmull_high_s8, vmull_s8, vpaddlq_s16, vpaddq_s32,
        vst1q_f32, vst1q_s32, vst1q_u8,
    };

    moves! {
        "neon" {
            read load_halves_64([u16; 4]) -> uint16x4_t = vld1_u16 as u16;
            read load_bytes_128([u8; 16]) -> uint8x16_t = vld1q_u8 as u8;
            read load_integers_128([i32; 4]) -> int32x4_t = vld1q_s32 as i32;
            read load_floats_128([f32; 4]) -> float32x4_t = vld1q_f32 as f32;
            write store_floats_128([f32; 4], float32x4_t) = vst1q_f32 as f32;
            write store_bytes_128([u8; 16], uint8x16_t) = vst1q_u8 as u8;
            write store_integers_128([i32; 4], int32x4_t) = vst1q_s32 as i32;
        }
    }

    /// Adds four products of bytes to each of four sums. Bytes are widened to 16 bits and added in
    /// pairs.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn dot_pairs_128(sums: int32x4_t, left: int8x16_t, right: int8x16_t) -> int32x4_t {
        let low = vpaddlq_s16(vmull_s8(vget_low_s8(left), vget_low_s8(right)));
        let high = vpaddlq_s16(vmull_high_s8(left, right));
        vaddq_s32(sums, vpaddq_s32(low, high))
    }

    /// Converts float16 to float32.
    #[target_feature(enable = "neon")]
    #[inline]
    #[expect(
        unsafe_code,
        reason = "an instruction between registers, which every NEON has"
    )]
    pub(crate) fn widen_halves_64(halves: uint16x4_t) -> float32x4_t {
        let result;
        // SAFETY: only registers are read and written.
        unsafe {
            std::arch::asm!(
                "fcvtl {result:v}.4s, {halves:v}.4h",
                result = lateout(vreg) result,
                halves = in(vreg) halves,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        result
    }

    /// Defines functions on registers by a single instruction that has no stable intrinsic.
    macro_rules! instructions {
        ($($(#[$doc:meta])* $name:ident, $features:literal, $instruction:literal;)*) => {$(
            $(#[$doc])*
            #[target_feature(enable = $features)]
            #[inline]
            #[expect(
                unsafe_code,
                reason = "an instruction between registers, which the target features allow"
            )]
            pub(crate) fn $name(sums: int32x4_t, left: int8x16_t, right: int8x16_t) -> int32x4_t {
                let mut result = sums;
                // SAFETY: only registers are read and written.
                unsafe {
                    std::arch::asm!(
                        concat!($instruction, " {result:v}.4s, {left:v}.16b, {right:v}.16b"),
                        result = inout(vreg) result,
                        left = in(vreg) left,
                        right = in(vreg) right,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
                result
            }
        )*};
    }

    instructions! {
        /// Adds four products of bytes to each of four sums.
        dot_bytes_128, "neon,dotprod", "sdot";
        /// Multiplies two rows of eight bytes by two columns of eight bytes. The sums are those of the first row,
        /// then those of the second.
        multiply_matrices_128, "neon,i8mm", "smmla";
    }
}

/// Calls a function with the target features of a [`Level`](super::cpu::Level), which the caller
/// took from a [`Cpu`](super::Cpu). A function that needs any other feature does not compile here.
macro_rules! inside {
    ($features:literal, $function:path, $($argument:ident: $type:ty),*) => {{
        #[target_feature(enable = $features)]
        fn inside($($argument: $type),*) {
            $function($($argument),*);
        }
        // SAFETY: the level of a `Cpu` is one that the processor has.
        #[expect(unsafe_code, reason = "a `Cpu` is the proof that its instructions may be run")]
        unsafe {
            inside($($argument),*);
        }
    }};
}

/// Defines a function that calls the implementation for the processor, from the modules `avx2`,
/// `avx512`, `neon` and `plain` beside it.
macro_rules! enter {
    ($(#[$documentation:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?);) => {
        $(#[$documentation])*
        pub(super) fn $name(cpu: crate::Cpu, $($argument: $type),*) {
            use crate::{cpu::Level, simd};
            match cpu.level() {
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::Avx2Vnni => {
                    simd::inside!("avx2,fma,f16c", avx2::$name, $($argument: $type),*);
                }
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 | Level::Avx512Vnni => {
                    simd::inside!("avx512f,avx512bw,avx512dq,avx512vl", avx512::$name, $($argument: $type),*);
                }
                #[cfg(target_arch = "aarch64")]
                Level::Neon | Level::NeonDot | Level::NeonMatrix => {
                    simd::inside!("neon", neon::$name, $($argument: $type),*);
                }
                _ => plain::$name($($argument),*),
            }
        }
    };
}

/// Defines a function in plain Rust that is compiled for each kind of register, so that the
/// compiler vectorises its loops. NEON is available on every aarch64 processor, for which plain
/// Rust is compiled anyway.
macro_rules! compiled {
    ($(#[$documentation:meta])*
     fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$documentation])*
        pub(super) fn $name(cpu: crate::Cpu, $($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            use crate::{cpu::Level, simd};

            #[inline(always)]
            fn plain($($argument: $type),*) $body
            match cpu.level() {
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::Avx2Vnni => {
                    simd::inside!("avx2,fma", plain, $($argument: $type),*);
                }
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 | Level::Avx512Vnni => {
                    simd::inside!("avx512f,avx512bw,avx512dq,avx512vl", plain, $($argument: $type),*);
                }
                _ => plain($($argument),*),
            }
        }
    };
}

pub(super) use {compiled, enter, inside};
