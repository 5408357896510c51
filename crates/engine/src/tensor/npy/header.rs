//! Parses and writes the header of a `.npy` file: magic, version, length, and a Python dictionary
//! of three entries.
//!
//! Invariant: only the dictionary that NumPy writes is accepted, in any order and spacing; nothing
//! is evaluated. A [`NpyHeader`] never has more than [`MAX_RANK`] dimensions or [`MAX_HEADER`] bytes.

use std::io::Read;

use super::super::DType;
use super::{MAGIC, NpyError};

/// Maximum size of a header, in bytes.
pub const MAX_HEADER: u64 = 64 << 10;

/// Maximum number of dimensions, which is NumPy's own limit.
pub const MAX_RANK: usize = 64;

/// Number of digits that NumPy reserves, so that the first size can grow in place.
const GROWTH_DIGITS: usize = 21;

/// The total size of a header is a multiple of this, in bytes.
const ALIGNMENT: usize = 64;

/// A parsed header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    /// Type of the elements.
    pub element: NpyElement,
    /// True if the elements are big-endian.
    pub big_endian: bool,
    /// True if the first axis varies fastest (column-major).
    pub fortran_order: bool,
    /// Sizes, outermost dimension first.
    pub shape: Vec<u64>,
    /// Number of bytes before the data.
    pub size: u64,
}

/// Type of the elements in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NpyElement {
    /// A type that NumPy supports.
    Of(DType),
    /// Two bytes without a type, as which NumPy stores bfloat16.
    TwoBytes,
}

impl NpyHeader {
    /// Reads the header, and leaves the reader at the data.
    pub fn read(reader: &mut dyn Read) -> Result<Self, NpyError> {
        let magic: [u8; 6] = array(reader).map_err(|_| NpyError::NotNpy)?;
        if magic != *MAGIC {
            return Err(NpyError::NotNpy);
        }
        let [major, minor] = array(reader)?;
        let (length, fixed) = match (major, minor) {
            (1, 0) => (u64::from(u16::from_le_bytes(array(reader)?)), 10),
            (2 | 3, 0) => (u64::from(u32::from_le_bytes(array(reader)?)), 12),
            _ => return Err(NpyError::Version { major, minor }),
        };
        if length > MAX_HEADER {
            return Err(NpyError::HeaderSize { claimed: length });
        }
        let mut text = Vec::new();
        let read = reader.take(length).read_to_end(&mut text);
        let read = read.map_err(|error| NpyError::Read {
            reason: error.to_string(),
        })?;
        if (read as u64) < length {
            return Err(NpyError::HeaderEnd);
        }
        let mut header = Literal { text: &text, at: 0 }.header()?;
        header.size = fixed + length;
        Ok(header)
    }

    /// Returns the dtype of the data's tensor; two bytes without a type are bfloat16.
    pub fn dtype(&self) -> DType {
        match self.element {
            NpyElement::Of(dtype) => dtype,
            NpyElement::TwoBytes => DType::Bfloat16,
        }
    }
}

fn array<const N: usize>(reader: &mut dyn Read) -> Result<[u8; N], NpyError> {
    let mut bytes = [0; N];
    match reader.read_exact(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(NpyError::HeaderEnd),
        Err(error) => Err(NpyError::Read {
            reason: error.to_string(),
        }),
    }
}

/// Returns everything before the data, as `numpy.save` writes it.
pub(super) fn text(dtype: DType, shape: &[u64]) -> Vec<u8> {
    let sizes: Vec<String> = shape.iter().map(u64::to_string).collect();
    let tuple = match &sizes[..] {
        [size] => format!("({size},)"),
        _ => format!("({})", sizes.join(", ")),
    };
    let mut dictionary = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': {tuple}, }}",
        descr(dtype)
    );
    if let Some(first) = sizes.first() {
        let room = GROWTH_DIGITS.saturating_sub(first.len());
        dictionary.extend(std::iter::repeat_n(' ', room));
    }
    let mut bytes = MAGIC.to_vec();
    // Version 1.0 stores the length in two bytes, 2.0 in four.
    let padded = |fixed: usize| {
        let used = fixed + dictionary.len() + 1;
        dictionary.len() + 1 + ALIGNMENT - used % ALIGNMENT
    };
    let (length, fixed) = if let Ok(length) = u16::try_from(padded(10)) {
        bytes.extend([1, 0]);
        bytes.extend(length.to_le_bytes());
        (usize::from(length), 10)
    } else {
        let length = u32::try_from(padded(12)).expect("a header is smaller than 4 GiB");
        bytes.extend([2, 0]);
        bytes.extend(length.to_le_bytes());
        (padded(12), 12)
    };
    bytes.extend(dictionary.as_bytes());
    bytes.resize(fixed + length - 1, b' ');
    bytes.push(b'\n');
    bytes
}

/// Returns the dtype as NumPy writes it.
fn descr(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::Int8 => "|i1",
        DType::Int16 => "<i2",
        DType::Int32 => "<i4",
        DType::Int64 => "<i8",
        DType::Uint8 => "|u1",
        DType::Uint16 | DType::Bfloat16 => "<u2",
        DType::Uint32 => "<u4",
        DType::Uint64 => "<u8",
        DType::Float16 => "<f2",
        DType::Float32 => "<f4",
        DType::Float64 => "<f8",
    }
}

/// Parses the element type of a `descr`, and whether it is big-endian.
fn element(descr: &str) -> Result<(NpyElement, bool), NpyError> {
    let order = descr.chars().next();
    let big_endian = order == Some('>');
    let code = match order {
        Some('<' | '>' | '|') => &descr[1..],
        _ => descr,
    };
    let known = match code {
        "b1" | "?" => Some(NpyElement::Of(DType::Bool)),
        "i1" => Some(NpyElement::Of(DType::Int8)),
        "u1" => Some(NpyElement::Of(DType::Uint8)),
        "V2" => Some(NpyElement::TwoBytes),
        // Elements of several bytes cannot be read without a byte order.
        _ if !matches!(order, Some('<' | '>')) => None,
        "i2" => Some(NpyElement::Of(DType::Int16)),
        "i4" => Some(NpyElement::Of(DType::Int32)),
        "i8" => Some(NpyElement::Of(DType::Int64)),
        "u2" => Some(NpyElement::Of(DType::Uint16)),
        "u4" => Some(NpyElement::Of(DType::Uint32)),
        "u8" => Some(NpyElement::Of(DType::Uint64)),
        "f2" => Some(NpyElement::Of(DType::Float16)),
        "f4" => Some(NpyElement::Of(DType::Float32)),
        "f8" => Some(NpyElement::Of(DType::Float64)),
        _ => None,
    };
    let Some(element) = known else {
        return Err(unsupported(descr, code.chars().next()));
    };
    Ok((element, big_endian && element != NpyElement::TwoBytes))
}

fn unsupported(descr: &str, kind: Option<char>) -> NpyError {
    let numbers = "convert them with `.astype` to a numeric dtype before saving";
    let (what, help) = match kind {
        Some('O') => (
            "pickled Python objects",
            "they are not supported; save an array of numbers",
        ),
        Some('S' | 'a' | 'U' | 'T') => ("text", "save the numbers that the model expects"),
        Some('c') => ("complex numbers", numbers),
        Some('M' | 'm') => ("dates or durations", numbers),
        Some('f' | 'g') => ("floats of another size", numbers),
        Some('V') => ("raw bytes", numbers),
        Some('[' | '(') => (
            "records of several fields",
            "save each field as an array of its own",
        ),
        _ => ("of an unknown type", numbers),
    };
    NpyError::Unsupported {
        descr: descr.chars().take(64).collect(),
        what,
        help,
    }
}

/// A strict parser of the header's dictionary.
struct Literal<'a> {
    text: &'a [u8],
    at: usize,
}

impl Literal<'_> {
    fn header(mut self) -> Result<NpyHeader, NpyError> {
        let (mut descr, mut order, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.accept(b'}') {
            let at = self.at;
            let key = self.string()?;
            self.expect(b':')?;
            let repeated = match key.as_str() {
                "descr" => descr.replace(self.descr()?).is_some(),
                "fortran_order" => order.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.shape()?).is_some(),
                _ => return self.fault(at, "expected descr, fortran_order or shape"),
            };
            if repeated {
                return self.fault(at, "duplicate key");
            }
            if !self.accept(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.skip_space();
        if self.at < self.text.len() {
            return self.fault(self.at, "expected the end after the dictionary");
        }
        let (Some((element, big_endian)), Some(fortran_order), Some(shape)) = (descr, order, shape)
        else {
            return self.fault(self.at, "descr, fortran_order or shape is missing");
        };
        Ok(NpyHeader {
            element,
            big_endian,
            fortran_order,
            shape,
            size: 0,
        })
    }

    fn descr(&mut self) -> Result<(NpyElement, bool), NpyError> {
        self.skip_space();
        if matches!(self.peek(), Some(b'[' | b'(')) {
            let rest = String::from_utf8_lossy(&self.text[self.at..]);
            return Err(unsupported(&rest, Some('[')));
        }
        element(&self.string()?)
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        self.skip_space();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        self.fault(self.at, "expected `True` or `False`")
    }

    fn shape(&mut self) -> Result<Vec<u64>, NpyError> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while !self.accept(b')') {
            if shape.len() == MAX_RANK {
                return self.fault(self.at, "expected at most 64 dimensions");
            }
            shape.push(self.size()?);
            if !self.accept(b',') {
                if shape.len() == 1 {
                    return self.fault(self.at, "expected a comma after the only size");
                }
                self.expect(b')')?;
                break;
            }
        }
        Ok(shape)
    }

    fn size(&mut self) -> Result<u64, NpyError> {
        self.skip_space();
        let start = self.at;
        let mut size: u64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            let digit = u64::from(digit - b'0');
            let Some(longer) = size
                .checked_mul(10)
                .and_then(|size| size.checked_add(digit))
            else {
                return self.fault(start, "expected a size of at most 64 bits");
            };
            size = longer;
            self.at += 1;
        }
        if self.at == start {
            return self.fault(start, "expected a size of 0 or more");
        }
        // Python 2 wrote long integers as `3L`.
        if self.peek() == Some(b'L') {
            self.at += 1;
        }
        Ok(size)
    }

    fn string(&mut self) -> Result<String, NpyError> {
        self.skip_space();
        let start = self.at;
        let Some(quote @ (b'\'' | b'"')) = self.peek() else {
            return self.fault(start, "expected a string");
        };
        let rest = &self.text[start + 1..];
        let Some(length) = rest.iter().position(|byte| *byte == quote) else {
            return self.fault(start, "unterminated string");
        };
        if rest[..length].contains(&b'\\') {
            return self.fault(start, "unexpected `\\` in a string");
        }
        self.at = start + length + 2;
        match std::str::from_utf8(&rest[..length]) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => self.fault(start, "the string is not UTF-8"),
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), NpyError> {
        if self.accept(byte) {
            return Ok(());
        }
        self.fault(self.at, &format!("expected `{}`", char::from(byte)))
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
        self.text.get(self.at).copied()
    }

    #[expect(clippy::unused_self, reason = "the callers read better with a method")]
    fn fault<T>(&self, at: usize, reason: &str) -> Result<T, NpyError> {
        Err(NpyError::Header {
            at,
            reason: reason.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NpyHeader, NpyError> {
        let literal = Literal {
            text: text.as_bytes(),
            at: 0,
        };
        literal.header()
    }

    #[test]
    fn the_dictionary_is_read_in_any_order() {
        let header = parse("{\"shape\":(2L,3), 'fortran_order' : True,'descr':'>f4'} \n");
        let header = header.expect("it is a dictionary");
        assert_eq!(header.shape, [2, 3]);
        assert_eq!(header.element, NpyElement::Of(DType::Float32));
        assert!(header.big_endian && header.fortran_order);
    }

    #[test]
    fn nothing_else_is_read() {
        for text in [
            "",
            "{",
            "{}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': ()}",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': True, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (), 'more': 1}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': ()} + 1",
            "{'descr': '\\x3cf4', 'fortran_order': True, 'shape': ()}",
        ] {
            assert!(
                matches!(parse(text), Err(NpyError::Header { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn what_no_tensor_holds_is_named() {
        for (descr, words) in [
            ("'|O'", "pickled Python objects"),
            ("'<U5'", "text"),
            ("'|S5'", "text"),
            ("'<c8'", "complex numbers"),
            ("'<M8[ns]'", "dates or durations"),
            ("'<f16'", "floats of another size"),
            ("'|V3'", "raw bytes"),
            ("[('a', '<f4')]", "records of several fields"),
            ("'f4'", "floats of another size"),
            ("''", "of an unknown type"),
            ("'é'", "of an unknown type"),
        ] {
            let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ()}}");
            match parse(&text) {
                Err(NpyError::Unsupported { what, .. }) => assert_eq!(what, words),
                other => panic!("{descr}: {other:?}"),
            }
        }
    }
}
