//! Weights that numbers of 16 bits hold exactly. Stored that way they take half of the memory and of the time to read
//! them; products are the same.

use super::aligned::AlignedNumbers;
use crate::simd::enter;

/// A format of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HalfKind {
    /// Half precision: float16.
    Half,
    /// The upper half of a float32: bfloat16.
    Brain,
}

/// Returns the numbers in 16 bits, if one format holds all of them exactly.
pub(super) fn exact(numbers: &[f32]) -> Option<(HalfKind, AlignedNumbers<u16>)> {
    let halves = |kind, of: fn(f32) -> Option<u16>| {
        let mut halves = AlignedNumbers::zeros(numbers.len());
        for (to, number) in halves.values_mut().iter_mut().zip(numbers) {
            *to = of(*number)?;
        }
        Some((kind, halves))
    };
    halves(HalfKind::Half, half_of).or_else(|| halves(HalfKind::Brain, brain_of))
}

/// Returns the float16 of a finite number.
fn half_of(number: f32) -> Option<u16> {
    let bits = number.to_bits();
    let (exponent, fraction) = (bits >> 23 & 0xff, bits & 0x7f_ffff);
    let magnitude = match exponent {
        0 if fraction == 0 => 0,
        113..=142 if fraction.trailing_zeros() >= 13 => (exponent - 112) << 10 | fraction >> 13,
        // A subnormal float16.
        103..=112 => {
            let (whole, shift) = (fraction | 0x80_0000, 126 - exponent);
            if whole.trailing_zeros() < shift {
                return None;
            }
            whole >> shift
        }
        _ => return None,
    };
    u16::try_from(bits >> 31 << 15 | magnitude).ok()
}

/// Returns the bfloat16 of a number.
fn brain_of(number: f32) -> Option<u16> {
    let bits = number.to_bits();
    if bits.trailing_zeros() >= 16 && number.is_finite() {
        return u16::try_from(bits >> 16).ok();
    }
    None
}

/// Returns the number of a finite float16.
pub(super) const fn half_number(half: u16) -> f32 {
    let bits = (half & 0x7fff) as u32;
    let (normal, least) = (bits << 13, 113_u32 << 23);
    let magnitude = if bits < 0x400 {
        // A subnormal: the fraction of a number above the least normal one.
        f32::from_bits(normal + least) - f32::from_bits(least)
    } else {
        f32::from_bits(normal + (112 << 23))
    };
    f32::from_bits(magnitude.to_bits() | (half as u32 >> 15) << 31)
}

/// Returns the number of a bfloat16.
pub(super) const fn brain_number(brain: u16) -> f32 {
    f32::from_bits((brain as u32) << 16)
}

/// Defines the functions for one instruction set.
macro_rules! widen {
    (#[$set:meta] $registers:ident) => {
        use super::{HalfKind, brain_number, half_number};
        use crate::float::registers::$registers::{LANES, load_brain, load_half, store};

        #[$set]
        pub(super) fn widen(kind: HalfKind, halves: &[u16], to: &mut [f32]) {
            let (registers, rest) = halves.as_chunks::<LANES>();
            let (stored, last) = to.as_chunks_mut::<LANES>();
            match kind {
                HalfKind::Half => {
                    for (to, halves) in stored.iter_mut().zip(registers) {
                        store(to, load_half(halves));
                    }
                    for (to, half) in last.iter_mut().zip(rest) {
                        *to = half_number(*half);
                    }
                }
                HalfKind::Brain => {
                    for (to, halves) in stored.iter_mut().zip(registers) {
                        store(to, load_brain(halves));
                    }
                    for (to, brain) in last.iter_mut().zip(rest) {
                        *to = brain_number(*brain);
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    widen!(
        #[target_feature(enable = "avx2,fma,f16c")]
        avx2
    );
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    widen!(
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        avx512
    );
}

#[cfg(target_arch = "aarch64")]
mod neon {
    widen!(
        #[target_feature(enable = "neon")]
        neon
    );
}

mod plain {
    widen!(
        #[inline(never)]
        plain
    );
}

enter! {
    /// Writes halves as float32.
    fn widen(kind: HalfKind, halves: &[u16], to: &mut [f32]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cpu;

    /// Every finite number of 16 bits stays what it is, in all instruction sets.
    #[test]
    fn halves_are_widened_exactly() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        for (kind, number) in [
            (HalfKind::Half, half_number as fn(u16) -> f32),
            (HalfKind::Brain, brain_number),
        ] {
            let infinite = match kind {
                HalfKind::Half => 0x7c00,
                HalfKind::Brain => 0x7f80,
            };
            let finite: Vec<u16> = all
                .iter()
                .copied()
                .filter(|it| it & infinite != infinite)
                .collect();
            let numbers: Vec<f32> = finite.iter().map(|half| number(*half)).collect();
            for cpu in Cpu::all() {
                let mut found = vec![0.0; finite.len()];
                widen(cpu, kind, &finite, &mut found);
                for (at, (found, number)) in found.iter().zip(&numbers).enumerate() {
                    assert_eq!(
                        found.to_bits(),
                        number.to_bits(),
                        "{kind:?} {:#x}",
                        finite[at]
                    );
                }
            }
            let (found, halves) = exact(&numbers).expect("halves hold them");
            assert_eq!(found, kind);
            assert_eq!(halves.values(), finite);
        }
    }

    #[test]
    fn other_numbers_stay_float32() {
        let bits = f32::from_bits;
        for number in [
            0.1,
            65_520.0,
            bits(0x3380_0001),
            bits(0x3300_0000),
            f32::NAN,
            f32::INFINITY,
        ] {
            assert!(half_of(number).is_none(), "{number}");
        }
        assert!(exact(&[0.5, 1e30, 0.1]).is_none());
        assert!(exact(&[f32::INFINITY]).is_none());
        // Neither format holds both.
        assert!(exact(&[bits(0x0080_0000), bits(0x3f80_2000)]).is_none());
        assert_eq!(half_of(-0.0), Some(0x8000));
        assert_eq!(half_of(5.960_464_5e-8), Some(1));
        assert_eq!(half_of(65_504.0), Some(0x7bff));
    }
}
