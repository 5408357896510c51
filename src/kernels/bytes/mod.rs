//! Arithmetic on quantised bytes: sums in 32 bits, which are rounded to bytes again at the end.
//!
//! Bytes are `u8` in memory whether they stand for signed numbers or not ([`Sign`]). All results are exact:
//! every set of instructions gives the same bytes.

pub(crate) mod convolution;
mod dense;
mod depthwise;
mod dispatch;
pub(crate) mod elementwise;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;
pub(crate) mod pool;
pub(crate) mod product;
pub(crate) mod real;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod tiles;
mod weights;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use convolution::Convolution;
pub(crate) use product::{Product, SumProduct};

/// What a byte stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// A number of -128 to 127.
    Signed,
    /// A number of 0 to 255.
    Unsigned,
}

impl Sign {
    /// The least and the largest number.
    pub(crate) const fn range(self) -> (i32, i32) {
        match self {
            Self::Signed => (-128, 127),
            Self::Unsigned => (0, 255),
        }
    }

    /// The bits that turn bytes of this kind into numbers from 0 up, in the same order.
    const fn flip(self) -> u8 {
        match self {
            Self::Signed => 0x80,
            Self::Unsigned => 0,
        }
    }

    /// The byte of a number that is in the range, whichever it is.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the low byte is meant"
    )]
    #[expect(
        clippy::unused_self,
        reason = "both are stored alike, which callers need not know"
    )]
    pub(crate) const fn byte(self, number: i32) -> u8 {
        number as u8
    }

    /// What is wrong with a number of this kind, if anything is.
    fn check(self, what: &str, number: i32) -> Result<(), String> {
        let (least, most) = self.range();
        if (least..=most).contains(&number) {
            return Ok(());
        }
        Err(format!("{what} of {number}; bytes hold {least} to {most}"))
    }
}

/// How 32-bit sums become bytes: times a scale, rounded half to even, plus the zero point, held to a range.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Requantize {
    /// Scales: one, or one for each output channel.
    pub(crate) factors: Vec<f32>,
    /// The number that stands for zero.
    pub(crate) zero_point: i32,
    /// The least number that is stored.
    pub(crate) least: i32,
    /// The largest number that is stored.
    pub(crate) most: i32,
}

/// The range and the zero point of what is stored, as the kernels use them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Limits {
    /// The least number, the zero point taken off.
    least: f32,
    /// The largest number, the zero point taken off.
    most: f32,
    /// The zero point.
    zero: i32,
}

impl Limits {
    /// For sums that are left as they are.
    const NONE: Self = Self {
        least: 0.0,
        most: 0.0,
        zero: 0,
    };

    #[expect(clippy::cast_precision_loss, reason = "numbers of nine bits")]
    fn new(sign: Sign, zero: i32, [least, most]: [i32; 2]) -> Result<Self, String> {
        sign.check("a zero point", zero)?;
        sign.check("a least number", least)?;
        sign.check("a largest number", most)?;
        if least > most {
            return Err(format!("a range of {least} to {most}"));
        }
        Ok(Self {
            least: (least - zero) as f32,
            most: (most - zero) as f32,
            zero,
        })
    }
}

impl Requantize {
    /// The limits, and a scale for each of the channels.
    fn check(&self, sign: Sign, channels: usize) -> Result<(Limits, Vec<f32>), String> {
        let limits = Limits::new(sign, self.zero_point, [self.least, self.most])?;
        if let Some(factor) = self.factors.iter().find(|factor| !factor.is_finite()) {
            return Err(format!("a scale of {factor}"));
        }
        match self.factors.as_slice() {
            [factor] => Ok((limits, vec![*factor; channels])),
            factors if factors.len() == channels => Ok((limits, factors.to_vec())),
            factors => Err(format!("{} scales for {channels} channels", factors.len())),
        }
    }
}

/// The nearest whole number, ties to even, held to a range of whole numbers below 2²².
#[inline(always)]
fn round_to(x: f32, least: f32, most: f32) -> i32 {
    const AWAY: f32 = 12_582_912.0;
    let bits = (x.max(least).min(most) + AWAY).to_bits();
    bits.wrapping_sub(AWAY.to_bits()).cast_signed()
}
