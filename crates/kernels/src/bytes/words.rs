//! The words that dot products multiply: neighbouring inputs in four bytes.

use std::borrow::Cow;

use super::Sign;
use super::tiles::Line;
use crate::cpu::Level;
use crate::simd::compiled;
use crate::{Cpu, Split};

/// The form of the inputs in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordForm {
    /// Four bytes.
    Bytes,
    /// Two integers of 16 bits, for processors that cannot multiply bytes exactly.
    Pairs,
}

impl WordForm {
    /// Returns the form that an instruction set multiplies.
    pub(super) const fn of(cpu: Cpu) -> Self {
        match cpu.level() {
            Level::Avx2 | Level::Avx512 => Self::Pairs,
            _ => Self::Bytes,
        }
    }

    /// Returns the number of inputs in a word.
    pub(super) const fn inputs(self) -> usize {
        match self {
            Self::Bytes => 4,
            Self::Pairs => 2,
        }
    }

    /// Returns the number of bytes of an input.
    pub(super) const fn input_bytes(self) -> usize {
        4 / self.inputs()
    }

    /// Writes the weight of an output channel and of an input, both counted within the line.
    pub(super) fn put(self, line: &mut Line, channel: usize, input: usize, weight: i8) {
        match self {
            Self::Bytes => line.0[channel * 4 + input] = weight.cast_unsigned(),
            Self::Pairs => {
                let at = channel * 4 + input * 2;
                line.0[at..at + 2].copy_from_slice(&i16::from(weight).to_ne_bytes());
            }
        }
    }

    /// Returns the word whose inputs are all this byte.
    pub(super) fn word(self, sign: Sign, byte: u8) -> [u8; 4] {
        match self {
            Self::Bytes => [byte; 4],
            Self::Pairs => {
                let [low, high] = sign.widened(byte).to_ne_bytes();
                [low, high, low, high]
            }
        }
    }

    /// Returns inputs in the form of words.
    pub(super) fn words_of(
        self,
        cpu: Cpu,
        sign: Sign,
        input: &[u8],
        split: Split,
    ) -> Cow<'_, [u8]> {
        if self == Self::Bytes {
            return Cow::Borrowed(input);
        }
        let mut words = vec![[0; 2]; input.len()];
        split.rows(&mut words, 1, 1, |first, words| {
            let from = &input[first..][..words.len()];
            match sign {
                Sign::Signed => widen_signed(cpu, from, words),
                Sign::Unsigned => widen_unsigned(cpu, from, words),
            }
        });
        Cow::Owned(words.into_flattened())
    }
}

impl Sign {
    const fn widened(self, byte: u8) -> i16 {
        match self {
            Self::Signed => byte.cast_signed() as i16,
            Self::Unsigned => byte as i16,
        }
    }
}

compiled! {
    fn widen_signed(from: &[u8], to: &mut [[u8; 2]]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = i16::from(from.cast_signed()).to_ne_bytes();
        }
    }
}

compiled! {
    fn widen_unsigned(from: &[u8], to: &mut [[u8; 2]]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = u16::from(*from).to_ne_bytes();
        }
    }
}
