//! A cursor over a GGUF file that reads numbers, texts and typed values.
//!
//! Invariant: a count is checked against the remaining bytes before memory is allocated for it.

use std::fmt::Display;

use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: u64 = 65_535;
/// Maximum length of a displayed text, in bytes.
const MAX_SHOWN_TEXT_BYTES: u64 = 200;
/// Maximum nesting depth of arrays.
const MAX_DEPTH: u32 = 8;
/// Approximate maximum memory for the description of one file, in bytes.
const MAX_RETAINED_BYTES: u64 = 64 << 20;
/// Approximate memory overhead of a name, in bytes.
const NAME_COST: u64 = 96;

/// Names of the value types by number, with the size of a value in bytes; 0 for types of variable
/// size.
const VALUE_TYPES: [(&str, u64); 13] = [
    ("uint8", 1),
    ("int8", 1),
    ("uint16", 2),
    ("int16", 2),
    ("uint32", 4),
    ("int32", 4),
    ("float32", 4),
    ("bool", 1),
    ("string", 0),
    ("array", 0),
    ("uint64", 8),
    ("int64", 8),
    ("float64", 8),
];
const STRING_TYPE: u32 = 8;
const ARRAY_TYPE: u32 = 9;

/// A cursor over the file.
pub(super) struct GgufReader<'a> {
    pages: &'a Pages<'a>,
    pub(super) at: u64,
    kept: u64,
}

/// A metadata value: its displayed text, and its number if it is an integer.
pub(super) struct MetadataValue {
    pub(super) shown: String,
    pub(super) number: Option<u64>,
}

impl<'a> GgufReader<'a> {
    pub(super) fn new(pages: &'a Pages<'a>) -> Self {
        Self {
            pages,
            at: 0,
            kept: 0,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.pages.len()
    }

    fn left(&self) -> u64 {
        self.pages.len().saturating_sub(self.at)
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        place: &dyn Display,
    ) -> Result<[u8; N], FormatError> {
        let found = self
            .pages
            .array(self.at)
            .map_err(|error| FormatError::unreadable(place, &error))?;
        self.at += N as u64;
        Ok(found)
    }

    pub(super) fn u32(&mut self, place: &dyn Display) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array(place)?))
    }

    pub(super) fn u64(&mut self, place: &dyn Display) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array(place)?))
    }

    /// Reads a count of items that take at least `least` bytes each.
    pub(super) fn count(&mut self, place: &dyn Display, least: u64) -> Result<u64, FormatError> {
        let offset = self.at;
        let found = self.u64(place)?;
        let left = self.left();
        if found.checked_mul(least).is_none_or(|needs| needs > left) {
            return Err(FieldPosition::new(place, offset).violates(format_args!(
                "a count of {found} does not fit the remaining {left} bytes"
            )));
        }
        Ok(found)
    }

    /// Reads the length of a text and checks that the file has as many bytes left.
    fn length(&mut self, place: &dyn Display) -> Result<u64, FormatError> {
        let offset = self.at;
        let length = self.u64(place)?;
        let left = self.left();
        if length > left {
            return Err(FieldPosition::new(place, offset).violates(format_args!(
                "needs {length} bytes, but the file has {left} left"
            )));
        }
        Ok(length)
    }

    fn bytes(&self, place: &dyn Display, size: u64) -> Result<Vec<u8>, FormatError> {
        let size = usize::try_from(size).expect("the caller bounds it");
        let bytes = self.pages.bytes(self.at, size);
        bytes.map_err(|error| FormatError::unreadable(place, &error))
    }

    /// Reads a complete name.
    pub(super) fn name(&mut self, place: &dyn Display) -> Result<String, FormatError> {
        let offset = self.at;
        let length = self.length(place)?;
        let wrong = || {
            FieldPosition::new(place, offset).violates(format_args!(
                "expected a name in UTF-8 of at most {MAX_NAME_BYTES} bytes"
            ))
        };
        if length > MAX_NAME_BYTES {
            return Err(wrong());
        }
        self.keep(place, 2 * length + NAME_COST)?;
        let name = String::from_utf8(self.bytes(place, length)?).map_err(|_| wrong())?;
        self.at += length;
        Ok(name)
    }

    /// Reads the beginning of a text and skips the rest.
    fn text(&mut self, place: &dyn Display) -> Result<String, FormatError> {
        let length = self.length(place)?;
        let shown = length.min(MAX_SHOWN_TEXT_BYTES);
        self.keep(place, shown + NAME_COST)?;
        let text = String::from_utf8_lossy(&self.bytes(place, shown)?).into_owned();
        self.at += length;
        if shown < length {
            let text = text.trim_end_matches('\u{fffd}');
            return Ok(format!("{text}… ({length} bytes)"));
        }
        Ok(text)
    }

    /// Reads a value of any type.
    pub(super) fn value(&mut self, place: &dyn Display) -> Result<MetadataValue, FormatError> {
        let kind = self.kind(place)?;
        let other = |shown: String| MetadataValue {
            shown,
            number: None,
        };
        let whole = |number: u64| MetadataValue {
            shown: number.to_string(),
            number: Some(number),
        };
        let signed = |number: i64| MetadataValue {
            shown: number.to_string(),
            number: u64::try_from(number).ok(),
        };
        Ok(match kind {
            0 => whole(self.array::<1>(place)?[0].into()),
            1 => signed(i8::from_le_bytes(self.array(place)?).into()),
            2 => whole(u16::from_le_bytes(self.array(place)?).into()),
            3 => signed(i16::from_le_bytes(self.array(place)?).into()),
            4 => whole(self.u32(place)?.into()),
            5 => signed(i32::from_le_bytes(self.array(place)?).into()),
            6 => other(f32::from_le_bytes(self.array(place)?).to_string()),
            7 => {
                let offset = self.at;
                match self.array::<1>(place)? {
                    [0] => other("false".to_owned()),
                    [1] => other("true".to_owned()),
                    [found] => {
                        return Err(
                            FieldPosition::new(place, offset).expected("a bool, 0 or 1", found)
                        );
                    }
                }
            }
            STRING_TYPE => other(self.text(place)?),
            ARRAY_TYPE => {
                let (kind, count) = self.skip_array(place, 1)?;
                let name = VALUE_TYPES[kind as usize].0;
                other(format!("{count} of {name}"))
            }
            10 => whole(self.u64(place)?),
            11 => signed(i64::from_le_bytes(self.array(place)?)),
            _ => other(f64::from_le_bytes(self.array(place)?).to_string()),
        })
    }

    fn kind(&mut self, place: &dyn Display) -> Result<u32, FormatError> {
        let offset = self.at;
        let kind = self.u32(place)?;
        if kind as usize >= VALUE_TYPES.len() {
            return Err(FieldPosition::new(format_args!("{place} type"), offset)
                .expected("a type from 0 to 12", kind));
        }
        Ok(kind)
    }

    /// Skips an array; returns the type and number of its elements.
    fn skip_array(&mut self, place: &dyn Display, depth: u32) -> Result<(u32, u64), FormatError> {
        let offset = self.at;
        if depth > MAX_DEPTH {
            return Err(FieldPosition::new(place, offset)
                .expected(format_args!("at most {MAX_DEPTH} nested arrays"), depth));
        }
        let kind = self.kind(place)?;
        let size = VALUE_TYPES[kind as usize].1;
        // A text takes at least the bytes of its length; a nested array also those of its type.
        let least = match kind {
            STRING_TYPE => 8,
            ARRAY_TYPE => 12,
            _ => size,
        };
        let count = self.count(place, least)?;
        match kind {
            STRING_TYPE => {
                for _ in 0..count {
                    let length = self.length(place)?;
                    self.at += length;
                }
            }
            ARRAY_TYPE => {
                for _ in 0..count {
                    self.skip_array(place, depth + 1)?;
                }
            }
            _ => self.at += count * size,
        }
        Ok((kind, count))
    }

    /// Counts bytes that stay in memory against the limit.
    pub(super) fn keep(&mut self, place: &dyn Display, size: u64) -> Result<(), FormatError> {
        self.kept = self.kept.saturating_add(size);
        if self.kept > MAX_RETAINED_BYTES {
            return Err(FormatError::new(format_args!(
                "{place}: names, shapes and texts take more than {MAX_RETAINED_BYTES} bytes"
            )));
        }
        Ok(())
    }
}
