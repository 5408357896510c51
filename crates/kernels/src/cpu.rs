//! Instruction sets of the kernels.
//!
//! Invariant: a [`Cpu`] other than [`Cpu::PLAIN`] exists only if the processor supports its
//! instructions. Owning one proves that they may be run.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Instruction sets. Each one includes those before it for the same processor family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain Rust, compiled for every processor of the target.
    Plain,
    /// x86-64: AVX2 and FMA.
    Avx2,
    /// x86-64: also dot products of bytes in 256 bits (AVX-VNNI).
    Avx2Vnni,
    /// x86-64: AVX-512 F, BW, DQ and VL.
    Avx512,
    /// x86-64: also dot products of bytes (AVX512-VNNI).
    Avx512Vnni,
    /// aarch64: NEON.
    Neon,
    /// aarch64: also dot products of bytes.
    NeonDot,
    /// aarch64: also products of small byte matrices (I8MM).
    NeonMatrix,
}

/// All levels in ascending order.
pub const LEVELS: [Level; 8] = [
    Level::Plain,
    Level::Avx2,
    Level::Avx2Vnni,
    Level::Avx512,
    Level::Avx512Vnni,
    Level::Neon,
    Level::NeonDot,
    Level::NeonMatrix,
];

/// Marks that no level was chosen; not an index of [`LEVELS`].
const NOT_CHOSEN: u8 = u8::MAX;

/// Index in [`LEVELS`] of the instruction set that the user chose.
static CHOSEN: AtomicU8 = AtomicU8::new(NOT_CHOSEN);

impl Level {
    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Avx2 => "avx2",
            Self::Avx2Vnni => "avx2-vnni",
            Self::Avx512 => "avx512",
            Self::Avx512Vnni => "avx512-vnni",
            Self::Neon => "neon",
            Self::NeonDot => "neon-dot",
            Self::NeonMatrix => "neon-i8mm",
        }
    }

    /// Returns the names of its processor extensions, for display.
    pub const fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &[],
            Self::Avx2 => &["AVX2"],
            Self::Avx2Vnni => &["AVX2", "AVX-VNNI"],
            Self::Avx512 => &["AVX2", "AVX-512"],
            Self::Avx512Vnni => &["AVX2", "AVX-512", "AVX-512 VNNI"],
            Self::Neon => &["NEON"],
            Self::NeonDot => &["NEON", "dot products"],
            Self::NeonMatrix => &["NEON", "dot products", "I8MM"],
        }
    }

    /// Returns whether this processor supports it.
    fn is_supported(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            // Every processor with AVX2 converts half precision, too.
            let avx2 = || {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            };
            let avx512 = || {
                avx2()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            };
            match self {
                Self::Plain => true,
                Self::Avx2 => avx2(),
                Self::Avx2Vnni => avx2() && is_x86_feature_detected!("avxvnni"),
                Self::Avx512 => avx512(),
                Self::Avx512Vnni => avx512() && is_x86_feature_detected!("avx512vnni"),
                Self::Neon | Self::NeonDot | Self::NeonMatrix => false,
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            let neon = || std::arch::is_aarch64_feature_detected!("neon");
            let dot = || neon() && std::arch::is_aarch64_feature_detected!("dotprod");
            match self {
                Self::Plain => true,
                Self::Neon => neon(),
                Self::NeonDot => dot(),
                Self::NeonMatrix => dot() && std::arch::is_aarch64_feature_detected!("i8mm"),
                _ => false,
            }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            self == Self::Plain
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = LEVELS.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = LEVELS.iter().map(|level| level.name()).collect();
            format!("unknown instruction set; supported: {}", names.join(", "))
        })
    }
}

/// An instruction set that the processor supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    level: Level,
}

impl Cpu {
    /// No special instructions.
    pub const PLAIN: Self = Self {
        level: Level::Plain,
    };

    /// Returns the best instruction set that the processor supports.
    pub(crate) fn best() -> Self {
        static BEST: OnceLock<Cpu> = OnceLock::new();
        *BEST.get_or_init(|| {
            let mut there = LEVELS.into_iter().filter(|level| level.is_supported());
            there
                .next_back()
                .map_or(Self::PLAIN, |level| Self { level })
        })
    }

    /// Returns the instruction set that the user chose, by default the best one.
    pub fn chosen() -> Self {
        let chosen = usize::from(CHOSEN.load(Ordering::Relaxed));
        let level = LEVELS.get(chosen).filter(|level| level.is_supported());
        level.map_or_else(Self::best, |level| Self { level: *level })
    }

    /// Makes this the instruction set of the process from now on.
    pub fn choose(self) {
        let place = LEVELS.iter().position(|level| *level == self.level);
        let place = place.and_then(|place| u8::try_from(place).ok());
        CHOSEN.store(place.unwrap_or(NOT_CHOSEN), Ordering::Relaxed);
    }

    /// Returns this instruction set if the processor supports it.
    pub fn with(level: Level) -> Result<Self, String> {
        if level.is_supported() {
            return Ok(Self { level });
        }
        let all: Vec<&str> = Self::all().map(|cpu| cpu.level.name()).collect();
        Err(format!(
            "this processor lacks {level}; it supports: {}",
            all.join(", ")
        ))
    }

    /// Returns all instruction sets that the processor supports, in ascending order.
    pub fn all() -> impl Iterator<Item = Self> {
        let there = LEVELS.into_iter().filter(|level| level.is_supported());
        there.map(|level| Self { level })
    }

    /// Returns the level.
    pub const fn level(self) -> Level {
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::Cpu;

    /// On a known processor, tests must find its instruction set, or they would pass without it.
    #[test]
    fn the_best_instruction_set_is_found() {
        if let Ok(expected) = std::env::var("PKGTOOL_BEST_INSTRUCTIONS") {
            assert_eq!(Cpu::best().level().name(), expected);
        }
    }
}
