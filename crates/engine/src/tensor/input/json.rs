//! Parses tensors from JSON: nested arrays of numbers and booleans, and objects of them by input
//! name.
//!
//! This parser writes values straight into a tensor: 64-bit integers stay exact, each float is
//! rounded once to its dtype, and no tree of values is built. Invariant: nesting is limited to
//! [`MAX_RANK`], and memory to eight bytes for two bytes of text.

use half::{bf16, f16};

use crate::tensor::npy::MAX_RANK;
use crate::tensor::{DType, Tensor};

/// Larger integers are inexact if they are written with a fraction or an exponent.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// A text that is not a valid tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at {place}: {reason}")]
pub struct JsonTensorError {
    /// The element, such as `[0][2]`, or the byte.
    pub place: String,
    /// The problem.
    pub reason: String,
}

/// Parses one array or scalar; its shape follows from the nesting.
pub fn array(text: &str, dtype: DType) -> Result<Tensor, JsonTensorError> {
    let mut reader = TensorReader { text, at: 0 };
    let tensor = reader.array(dtype)?;
    reader.end()?;
    Ok(tensor)
}

/// Returns the maximum size of a text's tensors, in bytes: it has at most one element more than
/// commas.
pub(super) fn most_bytes(text: &str, dtype: DType) -> u64 {
    let commas = text.matches(',').count() as u64;
    (commas + 1).saturating_mul(dtype.size())
}

/// Parses an object of arrays. `dtype` returns the dtype for a key, or an error message. The second
/// member of each pair is the key's value.
pub(super) fn object(
    text: &str,
    mut dtype: impl FnMut(&str) -> Result<DType, String>,
) -> Result<Vec<(String, Tensor)>, JsonTensorError> {
    let mut reader = TensorReader { text, at: 0 };
    let mut members: Vec<(String, Tensor)> = Vec::new();
    reader.expect(b'{')?;
    if !reader.accept(b'}') {
        loop {
            let at = reader.at;
            let key = reader.string()?;
            let dtype = dtype(&key).map_err(|reason| at_byte(at, reason))?;
            if members.iter().any(|(known, _)| *known == key) {
                return Err(at_byte(at, format!("duplicate key `{key}`")));
            }
            reader.expect(b':')?;
            let tensor = reader.array(dtype).map_err(|fault| JsonTensorError {
                place: format!("`{key}`, {}", fault.place),
                reason: fault.reason,
            })?;
            members.push((key, tensor));
            if !reader.accept(b',') {
                break;
            }
        }
        reader.expect(b'}')?;
    }
    reader.end()?;
    Ok(members)
}

fn at_byte(at: usize, reason: impl Into<String>) -> JsonTensorError {
    JsonTensorError {
        place: format!("byte {at}"),
        reason: reason.into(),
    }
}

struct TensorReader<'a> {
    text: &'a str,
    at: usize,
}

/// An array that is being parsed.
struct ArrayBuilder {
    dtype: DType,
    bytes: Vec<u8>,
    /// Sizes found so far; `None` for a dimension whose first array has not ended.
    shape: Vec<Option<u64>>,
    /// Depth of the elements, once one was found.
    leaves: Option<usize>,
    /// Indices of the current element.
    place: Vec<u64>,
}

impl TensorReader<'_> {
    fn array(&mut self, dtype: DType) -> Result<Tensor, JsonTensorError> {
        let mut growing = ArrayBuilder {
            dtype,
            bytes: Vec::new(),
            shape: Vec::new(),
            leaves: None,
            place: Vec::new(),
        };
        self.value(&mut growing)?;
        let shape = growing.shape.iter().map(|size| size.unwrap_or(0)).collect();
        Tensor::new(dtype, shape, growing.bytes)
            .map_err(|error| at_byte(self.at, error.to_string()))
    }

    fn value(&mut self, array: &mut ArrayBuilder) -> Result<(), JsonTensorError> {
        self.skip_space();
        let depth = array.place.len();
        let start = self.at;
        if self.peek() != Some(b'[') {
            if array.shape.len() > depth {
                return Err(
                    array.fault("rows differ: expected an array as in other rows, got a number")
                );
            }
            array.leaves = Some(depth);
            let token = self.token()?;
            return push(array, token).map_err(|reason| {
                if array.place.is_empty() {
                    at_byte(start, reason)
                } else {
                    array.fault(reason)
                }
            });
        }
        self.at += 1;
        if array.leaves.is_some_and(|leaves| leaves <= depth) {
            return Err(
                array.fault("rows differ: expected a number as in other rows, got an array")
            );
        }
        if depth == MAX_RANK {
            return Err(array.fault(format!("expected at most {MAX_RANK} dimensions")));
        }
        if array.shape.len() == depth {
            array.shape.push(None);
        }
        let mut count = 0;
        if !self.accept(b']') {
            loop {
                array.place.push(count);
                self.value(array)?;
                array.place.pop();
                count += 1;
                if !self.accept(b',') {
                    break;
                }
            }
            self.expect(b']')?;
        }
        match array.shape[depth] {
            Some(expected) if expected != count => Err(array.fault(format!(
                "rows differ: expected {expected} elements as in the first array of this depth, got {count}"
            ))),
            _ => {
                array.shape[depth] = Some(count);
                Ok(())
            }
        }
    }

    /// Returns a number, word or string as written.
    fn token(&mut self) -> Result<&str, JsonTensorError> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => {
                self.string()?;
            }
            Some(b'{') => {
                return Err(at_byte(
                    start,
                    "expected a number or an array, got an object",
                ));
            }
            _ => {
                let bytes = self.text.as_bytes()[start..].iter();
                self.at += bytes
                    .take_while(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'+' | b'.'))
                    .count();
            }
        }
        if self.at == start {
            return Err(at_byte(start, "expected a number or an array"));
        }
        Ok(&self.text[start..self.at])
    }

    fn string(&mut self) -> Result<String, JsonTensorError> {
        self.skip_space();
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(at_byte(start, "expected a string in double quotes"));
        }
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                let written = self.text.get(start..self.at);
                let read = written.and_then(|written| serde_json::from_str(written).ok());
                return read.ok_or_else(|| at_byte(start, "invalid JSON string"));
            }
        }
        Err(at_byte(start, "unterminated string"))
    }

    fn end(&mut self) -> Result<(), JsonTensorError> {
        self.skip_space();
        if self.at < self.text.len() {
            return Err(at_byte(self.at, "expected the end after the value"));
        }
        Ok(())
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonTensorError> {
        if self.accept(byte) {
            return Ok(());
        }
        Err(at_byte(self.at, format!("expected `{}`", char::from(byte))))
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.skip_space();
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

impl ArrayBuilder {
    fn fault(&self, reason: impl Into<String>) -> JsonTensorError {
        let steps: Vec<String> = self.place.iter().map(u64::to_string).collect();
        let place = format!("[{}]", steps.join("]["));
        let place = if steps.is_empty() {
            "the outermost level".to_owned()
        } else {
            place
        };
        JsonTensorError {
            place,
            reason: reason.into(),
        }
    }
}

/// Appends the element in `token`.
fn push(array: &mut ArrayBuilder, token: &str) -> Result<(), String> {
    let ArrayBuilder { dtype, bytes, .. } = array;
    let dtype = *dtype;
    if dtype == DType::Bool {
        let value = match token {
            "true" | "1" => 1,
            "false" | "0" => 0,
            _ => {
                return Err(format!(
                    "{} is not a boolean: write true or false",
                    shown(token)
                ));
            }
        };
        bytes.push(value);
        return Ok(());
    }
    if dtype.is_float() {
        return push_float(dtype, token, bytes);
    }
    let value = integer(token)?;
    let range = || format!("{token} is out of range for {dtype}");
    macro_rules! push {
        ($integer:ty) => {
            bytes.extend(
                <$integer>::try_from(value)
                    .map_err(|_| range())?
                    .to_le_bytes(),
            )
        };
    }
    match dtype {
        DType::Int8 => push!(i8),
        DType::Int16 => push!(i16),
        DType::Int32 => push!(i32),
        DType::Uint8 => push!(u8),
        DType::Uint16 => push!(u16),
        DType::Uint32 => push!(u32),
        DType::Uint64 => push!(u64),
        _ => push!(i64),
    }
    Ok(())
}

fn push_float(dtype: DType, token: &str, bytes: &mut Vec<u8>) -> Result<(), String> {
    let special = match token {
        "\"NaN\"" => Some(f64::NAN),
        "\"Infinity\"" => Some(f64::INFINITY),
        "\"-Infinity\"" => Some(f64::NEG_INFINITY),
        _ => None,
    };
    if special.is_none() && !is_number(token) {
        return Err(format!(
            "{} is not a number; NaN and infinities are \"NaN\", \"Infinity\" and \"-Infinity\"",
            shown(token)
        ));
    }
    let value = || -> f64 { special.unwrap_or_else(|| token.parse().unwrap_or(f64::NAN)) };
    let finite = match dtype {
        DType::Float16 => {
            let half = f16::from_f64(value());
            bytes.extend(half.to_le_bytes());
            half.is_finite()
        }
        DType::Bfloat16 => {
            let half = bf16::from_f64(value());
            bytes.extend(half.to_le_bytes());
            half.is_finite()
        }
        DType::Float32 => {
            // Parsed from the text: rounding twice could miss the nearest value.
            let nearest: f32 = match special {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "NaN and infinities are preserved"
                )]
                Some(special) => special as f32,
                None => token.parse().unwrap_or(f32::NAN),
            };
            bytes.extend(nearest.to_le_bytes());
            nearest.is_finite()
        }
        _ => {
            let value = value();
            bytes.extend(value.to_le_bytes());
            value.is_finite()
        }
    };
    if special.is_none() && !finite {
        return Err(format!("{} is out of range for {dtype}", shown(token)));
    }
    Ok(())
}

fn integer(token: &str) -> Result<i128, String> {
    let whole = || format!("{} is not an integer", shown(token));
    if !is_number(token) {
        return Err(whole());
    }
    if !token.contains(['.', 'e', 'E']) {
        // Longer numbers are out of every range.
        return token
            .parse()
            .map_err(|_| format!("{} is out of range", shown(token)));
    }
    let value: f64 = token.parse().map_err(|_| whole())?;
    if value.fract() != 0.0 || value.abs() > MAX_EXACT_INTEGER {
        return Err(whole());
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an integer of at most 53 bits"
    )]
    let value = value as i128;
    Ok(value)
}

/// Returns whether a token is a valid JSON number.
fn is_number(token: &str) -> bool {
    let digits = |text: &mut &str| {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let count = text.len() - rest.len();
        *text = rest;
        count
    };
    let mut rest = token.strip_prefix('-').unwrap_or(token);
    let leading_zero = rest.starts_with('0');
    let whole = digits(&mut rest);
    if whole == 0 || (leading_zero && whole > 1) {
        return false;
    }
    if let Some(fraction) = rest.strip_prefix('.') {
        rest = fraction;
        if digits(&mut rest) == 0 {
            return false;
        }
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        rest = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits(&mut rest) == 0 {
            return false;
        }
    }
    rest.is_empty()
}

/// Returns a token for an error message, cut if it is long.
fn shown(token: &str) -> String {
    if token.chars().count() <= 40 {
        return format!("`{token}`");
    }
    let start: String = token.chars().take(40).collect();
    format!("`{start}…`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, dtype: DType) -> Result<(Vec<u64>, Vec<u8>), String> {
        let tensor = array(text, dtype).map_err(|fault| fault.to_string())?;
        Ok((tensor.shape().to_vec(), tensor.into_bytes()))
    }

    #[test]
    fn nesting_is_the_shape() {
        let shape = |text| read(text, DType::Uint8).map(|(shape, _)| shape);
        assert_eq!(shape("5"), Ok(vec![]));
        assert_eq!(shape(" [ 1 , 2 ] "), Ok(vec![2]));
        assert_eq!(shape("[[1,2,3],[4,5,6]]"), Ok(vec![2, 3]));
        assert_eq!(shape("[]"), Ok(vec![0]));
        assert_eq!(shape("[[],[]]"), Ok(vec![2, 0]));
        assert_eq!(shape("[[[1]],[[2]]]"), Ok(vec![2, 1, 1]));
    }

    #[test]
    fn ragged_arrays_are_refused_with_the_place() {
        for (text, place) in [
            ("[[1,2],[3]]", "at [1]: rows differ: expected 2 elements"),
            ("[[1],2]", "at [1]: rows differ: expected an array"),
            ("[1,[2]]", "at [1]: rows differ: expected a number"),
            ("[[],[1]]", "at [1]: rows differ: expected 0 elements"),
            (
                "[[[1],[2]],[[3],[4,5]]]",
                "at [1][1]: rows differ: expected 1 elements",
            ),
            ("[[[]],[]]", "at [1]: rows differ: expected 1 elements"),
        ] {
            let error = read(text, DType::Int32).expect_err(text);
            assert!(error.starts_with(place), "{text}: {error}");
        }
    }

    #[test]
    fn integers_are_exact_and_in_range() {
        let exact = read("[9007199254740993, -9223372036854775808]", DType::Int64);
        let bytes = [
            9_007_199_254_740_993_i64.to_le_bytes(),
            i64::MIN.to_le_bytes(),
        ]
        .concat();
        assert_eq!(exact, Ok((vec![2], bytes)));
        let largest = read("18446744073709551615", DType::Uint64);
        assert_eq!(largest, Ok((vec![], u64::MAX.to_le_bytes().to_vec())));
        assert_eq!(
            read("[1e2, 2.0, -0]", DType::Uint8),
            Ok((vec![3], vec![100, 2, 0]))
        );
        for (text, dtype) in [
            ("300", DType::Uint8),
            ("-1", DType::Uint16),
            ("1.5", DType::Int32),
            ("18446744073709551616", DType::Uint64),
            ("99999999999999999999999999999999999999999999", DType::Int64),
            ("1e300", DType::Int64),
            ("true", DType::Int32),
            ("null", DType::Int32),
            ("\"NaN\"", DType::Int32),
            ("01", DType::Int32),
            ("+1", DType::Int32),
            ("2", DType::Bool),
            ("1e400", DType::Float64),
            ("1e39", DType::Float32),
            ("70000", DType::Float16),
            ("NaN", DType::Float32),
            (".5", DType::Float32),
            ("1.", DType::Float32),
            ("{}", DType::Float32),
            ("", DType::Float32),
            ("[1,]", DType::Float32),
            ("[1 2]", DType::Float32),
            ("[1]]", DType::Float32),
            ("\"\\", DType::Float32),
        ] {
            assert!(read(text, dtype).is_err(), "{text} as {dtype}");
        }
    }

    #[test]
    fn floats_are_the_nearest() {
        let (_, bytes) = read("[0.1, \"-Infinity\"]", DType::Float32).expect("floats");
        let expected = [0.1_f32.to_le_bytes(), f32::NEG_INFINITY.to_le_bytes()].concat();
        assert_eq!(bytes, expected);
        let (_, bytes) = read("\"NaN\"", DType::Bfloat16).expect("a float");
        assert!(bf16::from_le_bytes([bytes[0], bytes[1]]).is_nan());
        assert_eq!(
            read("[true, false]", DType::Bool),
            Ok((vec![2], vec![1, 0]))
        );
    }

    #[test]
    fn depth_is_bounded() {
        let deep = "[".repeat(1_000_000);
        let error = read(&deep, DType::Float32).expect_err("too deep");
        assert!(error.contains("expected at most 64 dimensions"), "{error}");
    }

    #[test]
    fn objects_have_each_key_once() {
        let dtype = |key: &str| {
            (key != "no")
                .then_some(DType::Int8)
                .ok_or("unknown".to_owned())
        };
        let members = object(r#"{"a": [1], "b\u00e9": 2}"#, dtype).expect("an object");
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "bé"]);
        assert_eq!(object("{}", dtype), Ok(vec![]));
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"no":1}"#,
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            "{a:1}",
            "{",
        ] {
            assert!(object(text, dtype).is_err(), "{text}");
        }
        let fault = object(r#"{"a": [1, 1000]}"#, dtype).expect_err("1000");
        assert_eq!(
            fault.to_string(),
            "at `a`, [1]: 1000 is out of range for int8"
        );
    }
}
