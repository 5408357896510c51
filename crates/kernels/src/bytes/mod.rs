//! Arithmetic on quantised bytes, with 32-bit sums that are rounded to bytes at the end.
//!
//! Bytes are `u8` in memory, whether they represent signed integers or not ([`Sign`]). Results are
//! exact: every instruction set computes the same bytes.

pub mod convolution;
mod dense;
mod depthwise;
mod dispatch;
pub mod elementwise;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;
pub mod pool;
pub mod product;
pub mod real;
pub mod table;
#[cfg(test)]
mod tests;
mod tiles;
mod weights;
mod words;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use convolution::ByteConvolution;
pub use product::{ByteProduct, SumProduct};

/// Number of multiplications of a product that take as long as computing an element with real
/// numbers and rounding it.
const ROUNDING_COST: usize = 8;

/// The range of integers that a byte represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// Integers from -128 to 127.
    Signed,
    /// Integers from 0 to 255.
    Unsigned,
}

impl Sign {
    /// Returns the minimum and maximum.
    pub const fn range(self) -> (i32, i32) {
        match self {
            Self::Signed => (-128, 127),
            Self::Unsigned => (0, 255),
        }
    }

    /// Returns the bits to flip so that bytes become numbers from 0 up, in the same order.
    const fn flip(self) -> u8 {
        match self {
            Self::Signed => 0x80,
            Self::Unsigned => 0,
        }
    }

    /// Returns the byte of an integer in the range.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "takes the low byte"
    )]
    pub const fn byte(self, number: i32) -> u8 {
        number as u8
    }

    /// Returns bytes as numbers from -128 to 127. Unsigned ones, and their zero points, become smaller by
    /// [`moved`](Self::moved).
    pub fn signed(self, bytes: &[u8]) -> Vec<i8> {
        let flip = match self {
            Self::Signed => 0,
            Self::Unsigned => 0x80,
        };
        bytes
            .iter()
            .map(|byte| (byte ^ flip).cast_signed())
            .collect()
    }

    /// Returns by how much [`signed`](Self::signed) makes numbers smaller.
    pub const fn moved(self) -> i32 {
        match self {
            Self::Signed => 0,
            Self::Unsigned => 128,
        }
    }

    /// Fails if an integer is out of range for this sign.
    fn check(self, what: &str, number: i32) -> Result<(), String> {
        let (least, most) = self.range();
        if (least..=most).contains(&number) {
            return Ok(());
        }
        Err(format!(
            "invalid {what} {number}: expected {least} to {most}"
        ))
    }
}

/// Conversion of 32-bit sums to bytes: scaled, rounded half to even, plus the zero point, clamped
/// to a range.
#[derive(Debug, Clone, PartialEq)]
pub struct Requantize {
    /// Scales: one, or one for each output channel.
    pub factors: Vec<f32>,
    /// Zero point of the output.
    pub zero_point: i32,
    /// Minimum of stored integers.
    pub least: i32,
    /// Maximum of stored integers.
    pub most: i32,
}

/// The range and zero point of stored integers, as the kernels use them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ByteLimits {
    /// Minimum, minus the zero point.
    least: f32,
    /// Maximum, minus the zero point.
    most: f32,
    /// Zero point.
    zero: i32,
}

impl ByteLimits {
    /// Limits for sums that stay unchanged.
    const NONE: Self = Self {
        least: 0.0,
        most: 0.0,
        zero: 0,
    };

    #[expect(clippy::cast_precision_loss, reason = "nine bits")]
    fn new(sign: Sign, zero: i32, [least, most]: [i32; 2]) -> Result<Self, String> {
        sign.check("zero point", zero)?;
        sign.check("minimum", least)?;
        sign.check("maximum", most)?;
        if least > most {
            return Err(format!("invalid range {least} to {most}"));
        }
        Ok(Self {
            least: (least - zero) as f32,
            most: (most - zero) as f32,
            zero,
        })
    }
}

impl Requantize {
    /// Returns the limits, and a scale for each of the channels.
    fn check(&self, sign: Sign, channels: usize) -> Result<(ByteLimits, Vec<f32>), String> {
        let limits = ByteLimits::new(sign, self.zero_point, [self.least, self.most])?;
        if let Some(factor) = self.factors.iter().find(|factor| !factor.is_finite()) {
            return Err(format!("invalid scale {factor}"));
        }
        match self.factors.as_slice() {
            [factor] => Ok((limits, vec![*factor; channels])),
            factors if factors.len() == channels => Ok((limits, factors.to_vec())),
            factors => Err(format!(
                "wrong number of scales: got {} for {channels} channels",
                factors.len()
            )),
        }
    }
}

/// Rounds half to even and clamps to a range of integers below 2²².
#[inline(always)]
fn round_to(x: f32, least: f32, most: f32) -> i32 {
    const AWAY: f32 = 12_582_912.0;
    let bits = (x.max(least).min(most) + AWAY).to_bits();
    bits.wrapping_sub(AWAY.to_bits()).cast_signed()
}
