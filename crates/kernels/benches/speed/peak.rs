//! What one thread can do at most: sums of products that never leave the registers.

use std::hint::black_box;
use std::time::Instant;

use pkgtool_kernels::Cpu;
use pkgtool_kernels::cpu::Level;

/// Steps of a measurement, and measurements.
const STEPS: u32 = 100_000;
const TIMES: usize = 50;

/// Independent sums: enough to hide how long one takes.
const SUMS: usize = 12;

/// A loop over registers of so many numbers.
macro_rules! steps {
    ($(#[$set:meta])? $name:ident, $splat:expr, $fused:expr) => {
        $(#[$set])?
        fn $name() {
            let (a, b) = ($splat(black_box(0.5)), $splat(black_box(0.25)));
            let mut sums = [a; SUMS];
            for _ in 0..STEPS {
                for sum in &mut sums {
                    *sum = $fused(a, b, *sum);
                }
            }
            black_box(sums);
        }
    };
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps, _mm512_fmadd_ps, _mm512_set1_ps};

#[cfg(target_arch = "x86_64")]
steps!(
    #[target_feature(enable = "avx2,fma")]
    avx2,
    _mm256_set1_ps,
    _mm256_fmadd_ps
);

#[cfg(target_arch = "x86_64")]
steps!(
    #[target_feature(enable = "avx512f")]
    avx512,
    _mm512_set1_ps,
    _mm512_fmadd_ps
);

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::{vdupq_n_f32, vfmaq_f32};

#[cfg(target_arch = "aarch64")]
steps!(
    #[target_feature(enable = "neon")]
    neon,
    vdupq_n_f32,
    (|a, b, sum| vfmaq_f32(sum, a, b))
);

/// Four numbers.
fn four(value: f32) -> [f32; 4] {
    [value; 4]
}

/// A product and a sum of four numbers.
fn multiply_add(a: [f32; 4], b: [f32; 4], sum: [f32; 4]) -> [f32; 4] {
    std::array::from_fn(|lane| a[lane] * b[lane] + sum[lane])
}

steps!(plain, four, multiply_add);

/// Runs the loop of an instruction set, and says how many numbers its registers have.
fn run(cpu: Cpu) -> usize {
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx2Vnni => {
            // SAFETY: the level of a `Cpu` is one that the processor has.
            unsafe { avx2() };
            8
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Vnni => {
            // SAFETY: the level of a `Cpu` is one that the processor has.
            unsafe { avx512() };
            16
        }
        #[cfg(target_arch = "aarch64")]
        Level::Neon | Level::NeonDot | Level::NeonMatrix => {
            // SAFETY: the level of a `Cpu` is one that the processor has.
            unsafe { neon() };
            4
        }
        _ => {
            plain();
            4
        }
    }
}

/// Billions of multiplications and additions in a second, at best.
pub(crate) fn measured(cpu: Cpu) -> f64 {
    let speeds = (0..TIMES).map(|_| {
        let start = Instant::now();
        let lanes = run(cpu);
        f64::from(STEPS) * (2 * SUMS * lanes) as f64 / start.elapsed().as_secs_f64() / 1e9
    });
    speeds.fold(0.0, f64::max)
}
