//! The element types that the library lacks: their bytes, and how numbers are rounded to them.

use tract_onnx::prelude::DatumType;

use crate::frontends::onnx::graph::{BFLOAT16, FLOAT, INT8, UINT8};

/// An element type that the library lacks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NarrowType {
    /// ONNX's code.
    pub(crate) code: i32,
    /// Bits of a stored element.
    pub(crate) bits: u32,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Unsigned,
    Signed,
    Float {
        exponent: u32,
        bias: i32,
        special: Special,
    },
}

/// Codes of a float type that are no finite numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    /// Infinities and NaN, as in IEEE 754.
    Infinities,
    /// Only NaN, with all bits set after the sign.
    Nan,
    /// Only NaN, in place of negative zero.
    NegativeZero,
    Nothing,
}

/// All such types.
pub(crate) const NARROW_TYPES: [NarrowType; 10] = [
    float(BFLOAT16, 16, 8, 127, Special::Infinities),
    float(17, 8, 4, 7, Special::Nan),
    float(18, 8, 4, 8, Special::NegativeZero),
    float(19, 8, 5, 15, Special::Infinities),
    float(20, 8, 5, 16, Special::NegativeZero),
    integer(21, 4, Kind::Unsigned),
    integer(22, 4, Kind::Signed),
    float(23, 4, 2, 1, Special::Nothing),
    integer(25, 2, Kind::Unsigned),
    integer(26, 2, Kind::Signed),
];

const fn float(code: i32, bits: u32, exponent: u32, bias: i32, special: Special) -> NarrowType {
    NarrowType {
        code,
        bits,
        kind: Kind::Float {
            exponent,
            bias,
            special,
        },
    }
}

const fn integer(code: i32, bits: u32, kind: Kind) -> NarrowType {
    NarrowType { code, bits, kind }
}

impl NarrowType {
    /// Returns the type of a code; `None` if the library has it or it is unknown.
    pub(crate) fn of(code: i64) -> Option<Self> {
        NARROW_TYPES
            .into_iter()
            .find(|it| i64::from(it.code) == code)
    }

    /// Returns the code of the wider type that carries its elements.
    pub(crate) fn carrier(self) -> i32 {
        match self.kind {
            Kind::Unsigned => UINT8,
            Kind::Signed => INT8,
            Kind::Float { .. } => FLOAT,
        }
    }

    /// Returns the library's type for [`carrier`](Self::carrier).
    pub(crate) fn datum_type(self) -> DatumType {
        match self.kind {
            Kind::Unsigned => DatumType::U8,
            Kind::Signed => DatumType::I8,
            Kind::Float { .. } => DatumType::F32,
        }
    }

    /// Returns the least and the largest number.
    #[expect(clippy::cast_possible_truncation, reason = "limits of small types")]
    pub(crate) fn limits(self) -> [f32; 2] {
        let all = 2_f32.powi(self.bits.cast_signed());
        match self.kind {
            Kind::Unsigned => [0.0, all - 1.0],
            Kind::Signed => [-all / 2.0, all / 2.0 - 1.0],
            Kind::Float { .. } => {
                let most = self.largest() as f32;
                [-most, most]
            }
        }
    }

    fn mantissa(self, exponent: u32) -> u32 {
        self.bits - 1 - exponent
    }

    /// Returns the largest finite number of a float type.
    fn largest(self) -> f64 {
        let Kind::Float {
            exponent, special, ..
        } = self.kind
        else {
            return f64::from(self.limits()[1]);
        };
        let last = (1_u32 << (self.bits - 1)) - 1;
        let code = match special {
            Special::Infinities => last - (1 << self.mantissa(exponent)),
            Special::Nan => last - 1,
            Special::NegativeZero | Special::Nothing => last,
        };
        f64::from(self.decoded(code))
    }

    /// Returns the number of a code.
    #[expect(clippy::cast_possible_truncation, reason = "float32 has all numbers")]
    pub(crate) fn decoded(self, code: u32) -> f32 {
        let Kind::Float {
            exponent,
            bias,
            special,
        } = self.kind
        else {
            return self.integer(code);
        };
        let mantissa = self.mantissa(exponent);
        let (power, part) = (
            code >> mantissa & ((1 << exponent) - 1),
            code & ((1 << mantissa) - 1),
        );
        let is_negative = code >> (self.bits - 1) & 1 == 1;
        let is_last = power == (1 << exponent) - 1;
        match special {
            Special::Infinities if is_last && part > 0 => return f32::NAN,
            Special::Infinities if is_last => {
                return if is_negative {
                    f32::NEG_INFINITY
                } else {
                    f32::INFINITY
                };
            }
            Special::Nan if is_last && part == (1 << mantissa) - 1 => return f32::NAN,
            Special::NegativeZero if is_negative && power == 0 && part == 0 => return f32::NAN,
            _ => {}
        }
        let whole = if power == 0 { 0 } else { 1 << mantissa };
        let step = power.max(1).cast_signed() - bias - mantissa.cast_signed();
        let number = f64::from(whole + part) * 2_f64.powi(step);
        (if is_negative { -number } else { number }) as f32
    }

    #[expect(clippy::cast_precision_loss, reason = "a few bits")]
    fn integer(self, code: u32) -> f32 {
        let all = 1_i32 << self.bits;
        let code = code.cast_signed() & (all - 1);
        let is_negative = self.kind == Kind::Signed && code >= all / 2;
        (if is_negative { code - all } else { code }) as f32
    }

    /// Rounds a number to the nearest one of the type, half to even. Numbers beyond the limits
    /// become the limits if it saturates.
    #[expect(clippy::cast_possible_truncation, reason = "float32 has all numbers")]
    pub(crate) fn rounded(self, number: f32, saturates: bool) -> f32 {
        let Kind::Float {
            exponent,
            bias,
            special,
        } = self.kind
        else {
            return self.wrapped(number);
        };
        if number.is_nan() {
            return if special == Special::Nothing {
                self.largest() as f32
            } else {
                number
            };
        }
        let (exact, largest) = (f64::from(number), self.largest());
        let mantissa = self.mantissa(exponent).cast_signed();
        let power = if exact == 0.0 {
            0
        } else {
            exact.abs().log2().floor() as i32
        };
        let step = 2_f64.powi(power.max(1 - bias) - mantissa);
        let rounded = if exact.is_finite() {
            (exact / step).round_ties_even() * step
        } else {
            exact
        };
        let beyond = match special {
            _ if rounded.abs() <= largest => {
                // There is no negative zero next to NaN.
                let is_zero = special == Special::NegativeZero && rounded == 0.0;
                return if is_zero { 0.0 } else { rounded as f32 };
            }
            _ if saturates && self.code != BFLOAT16 => largest,
            Special::Infinities => f64::INFINITY,
            Special::Nothing => largest,
            Special::Nan | Special::NegativeZero => f64::NAN,
        };
        beyond.copysign(exact) as f32
    }

    /// Keeps the last bits of an integer.
    #[expect(clippy::cast_possible_truncation, reason = "bytes")]
    fn wrapped(self, number: f32) -> f32 {
        self.integer((number as i32).cast_unsigned())
    }

    /// Returns the elements of stored bytes.
    pub(crate) fn unpacked(self, bytes: &[u8], count: usize) -> Vec<f32> {
        let element = |at: usize| {
            if self.bits == 16 {
                return u32::from(u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]));
            }
            let each = (8 / self.bits) as usize;
            let bits = u32::from(bytes[at / each]) >> (self.bits as usize * (at % each));
            bits & ((1 << self.bits) - 1)
        };
        (0..count).map(|at| self.decoded(element(at))).collect()
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "rounded numbers are exact")]
mod tests {
    use super::*;

    fn of(code: i64) -> NarrowType {
        NarrowType::of(code).expect("it is known")
    }

    #[test]
    fn every_code_is_rounded_to_itself() {
        for narrow in NARROW_TYPES {
            for code in 0..1_u32 << narrow.bits {
                let number = narrow.decoded(code);
                let again = narrow.rounded(number, false);
                let is_same =
                    number.to_bits() == again.to_bits() || number.is_nan() && again.is_nan();
                assert!(is_same, "{narrow:?} {code}: {number} {again}");
            }
        }
    }

    #[test]
    fn limits_are_those_of_the_standard() {
        let largest = [
            (16, 3.389_531_4e38),
            (17, 448.0),
            (18, 240.0),
            (19, 57344.0),
            (20, 57344.0),
            (23, 6.0),
        ];
        for (code, largest) in largest {
            assert_eq!(of(code).limits(), [-largest, largest], "{code}");
            assert_eq!(
                of(code).rounded(f32::MAX, true),
                if code == 16 { f32::INFINITY } else { largest }
            );
        }
        assert_eq!(of(21).limits(), [0.0, 15.0]);
        assert_eq!(of(22).limits(), [-8.0, 7.0]);
        assert_eq!(of(26).limits(), [-2.0, 1.0]);
        assert!(of(17).rounded(1000.0, false).is_nan());
        assert!(of(18).rounded(-1000.0, false).is_nan());
        assert_eq!(of(19).rounded(-1e9, false), f32::NEG_INFINITY);
    }

    #[test]
    fn halves_go_to_the_even_neighbour() {
        assert_eq!(of(23).rounded(2.5, true), 2.0);
        assert_eq!(of(23).rounded(-3.5, true), -4.0);
        assert_eq!(of(17).rounded(17.0, true), 16.0);
        assert_eq!(of(17).rounded(2_f32.powi(-10), true), 0.0);
        assert_eq!(of(16).rounded(1.003_906_3, true), 1.0);
    }

    #[test]
    fn the_first_element_is_in_the_lowest_bits() {
        assert_eq!(of(22).unpacked(&[0x8f, 0x07], 3), [-1.0, -8.0, 7.0]);
        assert_eq!(of(25).unpacked(&[0b11_10_01_00], 4), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(of(16).unpacked(&[0x80, 0x3f], 1), [1.0]);
    }
}
