//! Element types by their codes in ExecuTorch files, and the elements of small stored tensors.

use serde_json::{Number, Value};

use crate::ElementType;
use pkgtool_base::package::DType;

/// The last defined code.
pub(super) const LAST_CODE: i8 = 29;

/// Returns the element type of a code (`ScalarType` of `scalar_type.fbs`), and its size in bytes if
/// that is whole. An unknown code is named by its number.
pub(super) fn element_of(code: i8) -> (ElementType, Option<u64>) {
    let known = |dtype: DType| (ElementType::Known(dtype), Some(dtype.size()));
    let other = |name: &str, size| (ElementType::Other(name.to_owned()), size);
    match code {
        0 => known(DType::Uint8),
        1 => known(DType::Int8),
        2 => known(DType::Int16),
        3 => known(DType::Int32),
        4 => known(DType::Int64),
        5 => known(DType::Float16),
        6 => known(DType::Float32),
        7 => known(DType::Float64),
        8 => other("complex32", Some(4)),
        9 => other("complex64", Some(8)),
        10 => other("complex128", Some(16)),
        11 => known(DType::Bool),
        12 => other("qint8", Some(1)),
        13 => other("quint8", Some(1)),
        14 => other("qint32", Some(4)),
        15 => known(DType::Bfloat16),
        16 => other("quint4x2", None),
        17 => other("quint2x4", None),
        18 => other("bits1x8", None),
        19 => other("bits2x4", None),
        20 => other("bits4x2", None),
        21 => other("bits8", Some(1)),
        22 => other("bits16", Some(2)),
        23 => other("float8_e5m2", Some(1)),
        24 => other("float8_e4m3fn", Some(1)),
        25 => other("float8_e5m2fnuz", Some(1)),
        26 => other("float8_e4m3fnuz", Some(1)),
        27 => other("uint16", Some(2)),
        28 => other("uint32", Some(4)),
        29 => other("uint64", Some(8)),
        code => other(&format!("scalar_type {code}"), None),
    }
}

/// Decodes the elements in `bytes`; `None` if JSON cannot represent one of them (an infinity, a
/// NaN).
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> Option<Vec<Value>> {
    match dtype {
        DType::Bool => Some(bytes.iter().map(|&byte| Value::Bool(byte != 0)).collect()),
        DType::Uint8 => elements(bytes, |[byte]: [u8; 1]| Some(byte.into())),
        DType::Int8 => elements(bytes, |raw| Some(i8::from_le_bytes(raw).into())),
        DType::Int16 => elements(bytes, |raw| Some(i16::from_le_bytes(raw).into())),
        DType::Int32 => elements(bytes, |raw| Some(i32::from_le_bytes(raw).into())),
        DType::Int64 => elements(bytes, |raw| Some(i64::from_le_bytes(raw).into())),
        DType::Uint16 => elements(bytes, |raw| Some(u16::from_le_bytes(raw).into())),
        DType::Uint32 => elements(bytes, |raw| Some(u32::from_le_bytes(raw).into())),
        DType::Uint64 => elements(bytes, |raw| Some(u64::from_le_bytes(raw).into())),
        DType::Float16 => elements(bytes, |raw| Number::from_f64(half(u16::from_le_bytes(raw)))),
        DType::Bfloat16 => elements(bytes, |raw| {
            let bits = u32::from(u16::from_le_bytes(raw)) << 16;
            Number::from_f64(f32::from_bits(bits).into())
        }),
        DType::Float32 => elements(bytes, |raw| {
            Number::from_f64(f32::from_le_bytes(raw).into())
        }),
        DType::Float64 => elements(bytes, |raw| Number::from_f64(f64::from_le_bytes(raw))),
    }
}

fn elements<const N: usize>(
    bytes: &[u8],
    decode: impl Fn([u8; N]) -> Option<Number>,
) -> Option<Vec<Value>> {
    let (chunks, _) = bytes.as_chunks::<N>();
    chunks
        .iter()
        .map(|chunk| decode(*chunk).map(Value::Number))
        .collect()
}

/// Decodes an IEEE 754 binary16 value.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff);
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_halves_and_refuses_what_json_has_no_number_for() {
        let halves = [0x3c00, 0xc000, 0x0001, 0x3555, 0x7bff];
        let values = [
            1.0,
            -2.0,
            5.960_464_477_539_063e-8,
            0.333_251_953_125,
            65504.0,
        ];
        assert_eq!(halves.map(half).map(f64::to_bits), values.map(f64::to_bits));
        let bfloat = decode(DType::Bfloat16, &[0x80, 0x3f, 0x00, 0xc0]);
        assert_eq!(bfloat, Some(vec![1.0.into(), Value::from(-2.0)]));
        assert_eq!(decode(DType::Float32, &f32::NAN.to_le_bytes()), None);
        assert_eq!(decode(DType::Float16, &0x7c00u16.to_le_bytes()), None);
        let ints = decode(DType::Int16, &[0xff, 0xff, 0x02, 0x00]);
        assert_eq!(ints, Some(vec![(-1).into(), 2.into()]));
    }
}
