//! The only `unsafe` of the kernels: reading and writing registers, and the step into code that is compiled
//! for instructions which the processor was found to have.
//!
//! Invariant: nothing here can be used wrongly. What is read and written is an array of the register's size, and
//! [`inside`] takes its proof from a [`Cpu`](super::Cpu).

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::{__m256, _mm256_loadu_ps, _mm256_storeu_ps};

    /// Reads a register.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    #[expect(unsafe_code, reason = "the array has the register's size")]
    pub(in crate::kernels) fn load(from: &[f32; 8]) -> __m256 {
        // SAFETY: 32 bytes can be read there, and none need be aligned.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }

    /// Writes a register.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    #[expect(unsafe_code, reason = "the array has the register's size")]
    pub(in crate::kernels) fn store(into: &mut [f32; 8], value: __m256) {
        // SAFETY: 32 bytes can be written there, and none need be aligned.
        unsafe { _mm256_storeu_ps(into.as_mut_ptr(), value) }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512 {
    use std::arch::x86_64::{__m512, _mm512_loadu_ps, _mm512_storeu_ps};

    /// Reads a register.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[expect(unsafe_code, reason = "the array has the register's size")]
    pub(in crate::kernels) fn load(from: &[f32; 16]) -> __m512 {
        // SAFETY: 64 bytes can be read there, and none need be aligned.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    /// Writes a register.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[expect(unsafe_code, reason = "the array has the register's size")]
    pub(in crate::kernels) fn store(into: &mut [f32; 16], value: __m512) {
        // SAFETY: 64 bytes can be written there, and none need be aligned.
        unsafe { _mm512_storeu_ps(into.as_mut_ptr(), value) }
    }
}

/// Registers of whole numbers.
#[cfg(target_arch = "x86_64")]
pub(super) mod whole {
    use std::arch::x86_64::{__m256i, __m512i, _mm256_loadu_si256, _mm512_loadu_si512};

    /// Reads a register of bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    #[expect(unsafe_code, reason = "the array has the register's size")]
    pub(in crate::kernels) fn load_256(from: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes can be read there, and none need be aligned.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    /// Reads a register of bytes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    #[expect(unsafe_code, reason = "the array has the register's size")]
    pub(in crate::kernels) fn load_512(from: &[u8; 64]) -> __m512i {
        // SAFETY: 64 bytes can be read there, and none need be aligned.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }
}

/// Calls a function within the features of a [`Level`](super::cpu::Level), which the caller took from a
/// [`Cpu`](super::Cpu). A function that needs any other feature does not compile here.
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

pub(super) use inside;
