//! Summarises a tensor in one line: dtype, shape, range, mean, non-finite elements, first values.

use std::fmt;

use serde::Serialize;

use super::{DType, Tensor};

/// Maximum number of first elements that are kept.
const MAX_FIRST_VALUES: usize = 8;

/// Number of significant digits shown.
const SIGNIFICANT_DIGITS: usize = 4;

/// A summary of a tensor. Range and mean cover finite elements only.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost dimension first.
    pub shape: Vec<u64>,
    /// Smallest finite element; `None` without one, and for booleans.
    pub min: Option<f64>,
    /// Largest finite element.
    pub max: Option<f64>,
    /// Mean of the finite elements.
    pub mean: Option<f64>,
    /// Number of elements that are NaN.
    pub nan: u64,
    /// Number of elements that are infinite.
    pub infinite: u64,
    /// Number of elements that are true; only for booleans.
    pub trues: Option<u64>,
    /// The first elements, at most eight.
    pub first: Vec<Scalar>,
}

/// One element.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Scalar {
    /// Of a boolean tensor.
    Bool(bool),
    /// Of a tensor of signed integers.
    Int(i64),
    /// Of a tensor of unsigned integers.
    Uint(u64),
    /// Of a tensor of floats. In JSON, non-finite values are `null`.
    Float(f64),
}

impl Summary {
    /// Summarises a tensor in one pass over its elements.
    pub fn of(tensor: &Tensor) -> Self {
        let mut range: Option<(f64, f64)> = None;
        let (mut sum, mut finite, mut nan, mut infinite, mut trues) = (0.0, 0_u64, 0, 0, 0);
        for value in tensor.to_f64() {
            if value.is_finite() {
                let (low, high) = range.unwrap_or((value, value));
                range = Some((low.min(value), high.max(value)));
                sum += value;
                finite += 1;
                trues += u64::from(value != 0.0);
            } else if value.is_nan() {
                nan += 1;
            } else {
                infinite += 1;
            }
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "there are less than 2^53 elements"
        )]
        let finite = finite as f64;
        let mean = if f64::is_finite(sum) {
            sum / finite
        } else {
            // The sum of very large binary64 values overflowed, but their mean cannot.
            let values = tensor.to_f64().filter(|value| value.is_finite());
            values.map(|value| value / finite).sum()
        };
        let is_bool = tensor.dtype() == DType::Bool;
        let number = |value: f64| range.filter(|_| !is_bool).map(|_| value);
        Self {
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            min: range.and_then(|(low, _)| number(low)),
            max: range.and_then(|(_, high)| number(high)),
            mean: number(mean),
            nan,
            infinite,
            trues: is_bool.then_some(trues),
            first: first(tensor),
        }
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> u64 {
        // In an empty tensor, the product of the other sizes may overflow.
        if self.shape.contains(&0) {
            return 0;
        }
        self.shape.iter().product()
    }
}

fn first(tensor: &Tensor) -> Vec<Scalar> {
    let size = usize::try_from(tensor.dtype().size()).expect("a size is at most 8");
    let elements = tensor.bytes().chunks_exact(size).take(MAX_FIRST_VALUES);
    let values = elements.zip(tensor.to_f64());
    values
        .map(|(bytes, value)| {
            // Widens the integer to 64 bits with sign or zero bytes, since a float would round it.
            let widened = |fill: u8| {
                let mut wide = [fill; 8];
                wide[..size].copy_from_slice(bytes);
                wide
            };
            match tensor.dtype() {
                DType::Bool => Scalar::Bool(value != 0.0),
                DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => {
                    let fill = if value < 0.0 { 0xff } else { 0 };
                    Scalar::Int(i64::from_le_bytes(widened(fill)))
                }
                DType::Uint8 | DType::Uint16 | DType::Uint32 | DType::Uint64 => {
                    Scalar::Uint(u64::from_le_bytes(widened(0)))
                }
                _ => Scalar::Float(value),
            }
        })
        .collect()
}

/// `float32[1, 10]  min -1.234  max 3.2  mean 0.12  [0.1, -1.2, 3.2, …]`. Columns are two spaces
/// apart. Counts of NaN and infinite elements come before the values, if there are any.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if let Some(trues) = self.trues {
            write!(f, "  {trues} true")?;
        }
        if let (Some(min), Some(max), Some(mean)) = (self.min, self.max, self.mean) {
            let (min, max, mean) = (format_number(min), format_number(max), format_number(mean));
            write!(f, "  min {min}  max {max}  mean {mean}")?;
        }
        if self.nan > 0 {
            write!(f, "  {} NaN", self.nan)?;
        }
        if self.infinite > 0 {
            write!(f, "  {} infinite", self.infinite)?;
        }
        let values: Vec<String> = self.first.iter().map(Scalar::to_string).collect();
        let more = self.elements() > self.first.len() as u64;
        let more = if more { ", …" } else { "" };
        write!(f, "  [{}{more}]", values.join(", "))
    }
}

/// Floats with four significant digits; integers and booleans exactly.
impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Uint(value) => value.fmt(f),
            Self::Float(value) => f.write_str(&format_number(*value)),
        }
    }
}

/// Formats a number with four significant digits and without trailing zeros. Integers below a
/// million are written in full; very large and small numbers have an exponent.
fn format_number(value: f64) -> String {
    if !value.is_finite() {
        return match value {
            value if value.is_nan() => "NaN".to_owned(),
            value if value > 0.0 => "inf".to_owned(),
            _ => "-inf".to_owned(),
        };
    }
    if value.fract() == 0.0 && value.abs() < 1e6 {
        // `+ 0.0` turns a negative zero into a positive one.
        return format!("{}", value + 0.0);
    }
    let rounded = format!("{value:.*e}", SIGNIFICANT_DIGITS - 1);
    let (digits, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(3 - exponent).unwrap_or(0);
        let plain = format!("{value:.decimals$}");
        return trimmed(&plain).to_owned();
    }
    format!("{}e{exponent}", trimmed(digits))
}

fn trimmed(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(dtype: DType, shape: &[u64], values: &[f64]) -> String {
        let tensor = Tensor::from_f64(dtype, shape.to_vec(), values.iter().copied());
        Summary::of(&tensor.expect("it is small")).to_string()
    }

    #[test]
    fn a_line_says_what_is_in_a_tensor() {
        assert_eq!(
            line(DType::Float32, &[1, 3], &[0.1, -1.2344, 3.2]),
            "float32[1, 3]  min -1.234  max 3.2  mean 0.6885  [0.1, -1.234, 3.2]"
        );
        assert_eq!(
            line(DType::Int64, &[9], &[1.0, -2.0]),
            "int64[9]  min -2  max 1  mean -0.1111  [1, -2, 0, 0, 0, 0, 0, 0, …]"
        );
        assert_eq!(
            line(DType::Bool, &[3], &[1.0, 0.0, 1.0]),
            "bool[3]  2 true  [true, false, true]"
        );
        assert_eq!(
            line(DType::Float16, &[3], &[f64::NAN, f64::INFINITY, 2.0]),
            "float16[3]  min 2  max 2  mean 2  1 NaN  1 infinite  [NaN, inf, 2]"
        );
        assert_eq!(line(DType::Float32, &[0, 2], &[]), "float32[0, 2]  []");
        assert_eq!(
            line(DType::Bfloat16, &[], &[f64::NAN]),
            "bfloat16[]  1 NaN  [NaN]"
        );
    }

    #[test]
    fn numbers_have_four_digits() {
        let shown = [
            1e-9,
            12345.678,
            0.000_123_456,
            1e6,
            1.5e300,
            -0.0,
            99_999.9,
            999_999.9,
            0.5,
        ];
        let shown = shown.map(format_number);
        let expected = [
            "1e-9",
            "12346",
            "0.0001235",
            "1e6",
            "1.5e300",
            "0",
            "100000",
            "1e6",
            "0.5",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn large_values_have_a_mean_and_large_integers_are_exact() {
        let tensor = Tensor::from_f64(DType::Float64, vec![2], [f64::MAX, f64::MAX]);
        let summary = Summary::of(&tensor.expect("it is small"));
        assert_eq!(summary.mean, Some(f64::MAX));
        let bytes = [
            u64::MAX.to_le_bytes(),
            9_007_199_254_740_993_u64.to_le_bytes(),
        ]
        .concat();
        let tensor = Tensor::new(DType::Uint64, vec![2], bytes).expect("it is small");
        let exact = [Scalar::Uint(u64::MAX), Scalar::Uint(9_007_199_254_740_993)];
        assert_eq!(Summary::of(&tensor).first, exact);
        let tensor = Tensor::new(DType::Int16, vec![1], vec![0xfe, 0xff]).expect("it is small");
        assert_eq!(Summary::of(&tensor).first, [Scalar::Int(-2)]);
    }
}
