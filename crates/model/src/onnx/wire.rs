//! A streaming parser for the protobuf wire format: iterates over the fields of a message in the
//! file.
//!
//! Format: <https://protobuf.dev/programming-guides/encoding/>. The tables of [`super::schema`]
//! name the fields; the parser does not interpret them. Invariant: a field never extends past its
//! message. Memory is allocated only after a length was checked against the limit and the file.

use std::cell::Cell;

use super::place::{FieldName, FieldPath};
use super::schema::{FieldDef, MAX_FIELDS, Repeat};
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

/// Maximum length of a name, in bytes.
pub(super) const MAX_NAME_BYTES: u64 = 64 * 1024;
/// Maximum length of a text that is only displayed, in bytes.
const MAX_EXCERPT_BYTES: u64 = 4096;
/// Maximum memory for everything kept of a model, in bytes.
const MAX_RETAINED_BYTES: u64 = 32 * 1024 * 1024;
/// Approximate memory of a kept text beyond its bytes.
const TEXT_OVERHEAD: u64 = 64;
const MAX_VARINT_BYTES: u64 = 10;
const MAX_FIELD_NUMBER: u64 = (1 << 29) - 1;

/// The file, and the remaining allowance for kept data.
pub(super) struct WireReader<'a> {
    pages: &'a Pages<'a>,
    allowance: Cell<u64>,
}

/// A message being read, field by field.
pub(super) struct WireMessage<'a> {
    reader: &'a WireReader<'a>,
    place: &'a FieldPath<'a>,
    schema: &'static [FieldDef],
    at: u64,
    end: u64,
    seen: [u64; MAX_FIELDS],
}

/// A field of a message; a length-delimited value has not been read yet.
#[derive(Clone, Copy)]
pub(super) struct WireField<'a> {
    reader: &'a WireReader<'a>,
    place: FieldPath<'a>,
    /// File offset of its tag.
    offset: u64,
    payload: WirePayload,
}

#[derive(Clone, Copy)]
enum WirePayload {
    Varint { value: u64, size: u64 },
    Fixed64,
    Fixed32,
    Bytes { start: u64, length: u64 },
}

impl<'a> WireReader<'a> {
    pub(super) fn new(pages: &'a Pages<'a>) -> Self {
        let allowance = Cell::new(MAX_RETAINED_BYTES);
        Self { pages, allowance }
    }

    fn read(
        &self,
        place: &FieldPath<'_>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), FormatError> {
        self.pages
            .read(offset, buffer)
            .map_err(|error| FormatError::unreadable(place, &error))
    }

    /// Reads the varint at `offset` of a message that ends at `end`; returns its value and its size
    /// in bytes.
    fn varint(
        &self,
        place: &FieldPath<'_>,
        offset: u64,
        end: u64,
    ) -> Result<(u64, u64), FormatError> {
        let left = end - offset;
        let mut buffer = [0; 10];
        let window =
            &mut buffer[..usize::try_from(left.min(MAX_VARINT_BYTES)).expect("at most 10")];
        self.read(place, offset, window)?;
        let mut value = 0;
        for (size, &byte) in (1..).zip(window.iter()) {
            if size == MAX_VARINT_BYTES && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * (size - 1));
            if byte & 0x80 == 0 {
                return Ok((value, size));
            }
        }
        let place = place.to_string();
        Err(if left < MAX_VARINT_BYTES {
            FieldPosition::new(place, offset).expected(
                "a varint",
                format_args!("the end of the message after {left} bytes"),
            )
        } else {
            FieldPosition::new(place, offset).expected("a varint", "one longer than 64 bits")
        })
    }
}

impl<'a> WireMessage<'a> {
    /// Treats the whole file as one message.
    pub(super) fn whole_file(
        reader: &'a WireReader<'a>,
        place: &'a FieldPath<'a>,
        schema: &'static [FieldDef],
    ) -> Self {
        Self {
            reader,
            place,
            schema,
            at: 0,
            end: reader.pages.len(),
            seen: [0; MAX_FIELDS],
        }
    }

    /// Returns the next field; `None` at the end of the message.
    pub(super) fn next(&mut self) -> Result<Option<WireField<'a>>, FormatError> {
        if self.at == self.end {
            return Ok(None);
        }
        let offset = self.at;
        let (tag, size) = self.reader.varint(self.place, offset, self.end)?;
        self.at += size;
        let place = self.enter(tag >> 3, offset)?;
        let payload = self.payload(&place, offset, tag & 7)?;
        Ok(Some(WireField {
            reader: self.reader,
            place,
            offset,
            payload,
        }))
    }

    /// Checks a field number and counts its occurrences.
    fn enter(&mut self, number: u64, offset: u64) -> Result<FieldPath<'a>, FormatError> {
        if !(1..=MAX_FIELD_NUMBER).contains(&number) {
            return Err(FieldPosition::new(self.place, offset)
                .expected("a field number from 1 to 536870911", number));
        }
        let mut place = FieldPath {
            parent: Some(self.place),
            name: FieldName::Number(number),
            index: None,
        };
        let mut fields = self.schema.iter().zip(&mut self.seen);
        if let Some((def, seen)) = fields.find(|(def, _)| u64::from(def.number) == number) {
            place.name = FieldName::Known(def.name);
            place.index = (def.repeat == Repeat::Adds).then_some(*seen);
            if def.repeat == Repeat::Refused && *seen > 0 {
                let place = place.to_string();
                return Err(FieldPosition::new(place, offset)
                    .expected("the field once", "it a second time"));
            }
            *seen += 1;
        }
        Ok(place)
    }

    /// Reads a number or a length, and skips a length-delimited value.
    fn payload(
        &mut self,
        place: &FieldPath<'_>,
        offset: u64,
        wire: u64,
    ) -> Result<WirePayload, FormatError> {
        match wire {
            0 => {
                let (value, size) = self.reader.varint(place, self.at, self.end)?;
                self.at += size;
                Ok(WirePayload::Varint { value, size })
            }
            1 => self.fixed(place, 8, "8 bytes", WirePayload::Fixed64),
            2 => self.delimited(place),
            5 => self.fixed(place, 4, "4 bytes", WirePayload::Fixed32),
            other => Err(FieldPosition::new(place, offset)
                .violates(format_args!("unsupported wire type {other}"))),
        }
    }

    fn fixed(
        &mut self,
        place: &FieldPath<'_>,
        size: u64,
        expected: &'static str,
        payload: WirePayload,
    ) -> Result<WirePayload, FormatError> {
        let left = self.end - self.at;
        if left < size {
            return Err(FieldPosition::new(place, self.at).expected(
                expected,
                format_args!("the end of the message after {left} bytes"),
            ));
        }
        self.at += size;
        Ok(payload)
    }

    fn delimited(&mut self, place: &FieldPath<'_>) -> Result<WirePayload, FormatError> {
        let (length, size) = self.reader.varint(place, self.at, self.end)?;
        let start = self.at + size;
        let left = self.end - start;
        if length > left {
            return Err(FieldPosition::new(place, start).violates(format_args!(
                "needs {length} bytes, but the enclosing message has {left} left"
            )));
        }
        self.at = start + length;
        Ok(WirePayload::Bytes { start, length })
    }
}

impl<'a> WireField<'a> {
    /// Returns its name; empty for a field that the schema lacks.
    pub(super) fn name(&self) -> &'static str {
        match self.place.name {
            FieldName::Known(name) => name,
            FieldName::Number(_) => "",
        }
    }

    /// Returns its position for an error.
    pub(super) fn place(&self) -> &FieldPath<'a> {
        &self.place
    }

    /// Returns its position with the offset of its tag, for an error.
    pub(super) fn position(&self) -> FieldPosition {
        FieldPosition::new(self.place, self.offset)
    }

    /// Returns the file offset of its tag.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the size of its value in the file, in bytes.
    pub(super) fn size(&self) -> u64 {
        match self.payload {
            WirePayload::Varint { size, .. } => size,
            WirePayload::Fixed64 => 8,
            WirePayload::Fixed32 => 4,
            WirePayload::Bytes { length, .. } => length,
        }
    }

    /// Returns its value as a signed number.
    pub(super) fn int(&self) -> Result<i64, FormatError> {
        match self.payload {
            WirePayload::Varint { value, .. } => Ok(value.cast_signed()),
            _ => Err(self.wrong("a varint")),
        }
    }

    /// Visits its values, encoded one by one or packed.
    pub(super) fn each_int(&self, mut each: impl FnMut(i64)) -> Result<(), FormatError> {
        let WirePayload::Bytes { start, length } = self.payload else {
            each(self.int()?);
            return Ok(());
        };
        let end = start + length;
        let mut at = start;
        while at < end {
            let (value, size) = self.reader.varint(&self.place, at, end)?;
            each(value.cast_signed());
            at += size;
        }
        Ok(())
    }

    /// Returns its value as a message.
    pub(super) fn message(
        &self,
        schema: &'static [FieldDef],
    ) -> Result<WireMessage<'_>, FormatError> {
        let (start, length) = self.delimited()?;
        Ok(WireMessage {
            reader: self.reader,
            place: &self.place,
            schema,
            at: start,
            end: start + length,
            seen: [0; MAX_FIELDS],
        })
    }

    /// Returns its value as bytes, for comparison with a name; `None` if it exceeds the maximum
    /// length of a name.
    pub(super) fn name_bytes(&self) -> Result<Option<Vec<u8>>, FormatError> {
        let (start, length) = self.delimited()?;
        if length > MAX_NAME_BYTES {
            return Ok(None);
        }
        self.bytes(start, length).map(Some)
    }

    /// Returns its value as the bytes of a name; fails if it exceeds the maximum length.
    pub(super) fn identifier(&self) -> Result<Vec<u8>, FormatError> {
        self.bytes_within(MAX_NAME_BYTES)
    }

    fn bytes_within(&self, most: u64) -> Result<Vec<u8>, FormatError> {
        let (start, length) = self.delimited()?;
        if length > most {
            return Err(FieldPosition::new(self.place, start)
                .expected(format_args!("at most {most} bytes of text"), length));
        }
        self.bytes(start, length)
    }

    /// Returns its value as text for temporary use.
    pub(super) fn text(&self) -> Result<String, FormatError> {
        self.long_text(MAX_NAME_BYTES)
    }

    /// Returns its value as text, which may be far longer than a name; fails if it exceeds `most` bytes.
    pub(super) fn long_text(&self, most: u64) -> Result<String, FormatError> {
        let (start, _) = self.delimited()?;
        String::from_utf8(self.bytes_within(most)?).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            FieldPosition::new(self.place, start + at as u64).expected(
                "UTF-8 text",
                format_args!("byte {:#04x}", error.as_bytes()[at]),
            )
        })
    }

    /// Returns its value as text to keep, and charges the allowance.
    pub(super) fn kept_text(&self) -> Result<String, FormatError> {
        let text = self.text()?;
        self.keep(text.len() as u64 + TEXT_OVERHEAD)?;
        Ok(text)
    }

    /// Returns the beginning of its value as displayable text, even if it is not UTF-8; charges the
    /// allowance.
    pub(super) fn excerpt(&self) -> Result<String, FormatError> {
        let (start, length) = self.delimited()?;
        let bytes = self.bytes(start, length.min(MAX_EXCERPT_BYTES))?;
        // A character cut at the end is dropped; other invalid bytes become U+FFFD.
        let mut text = String::new();
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        if length > MAX_EXCERPT_BYTES {
            text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
            text.push('…');
        }
        self.keep(text.len() as u64 + TEXT_OVERHEAD)?;
        Ok(text)
    }

    /// Charges `bytes` to the allowance for kept data.
    pub(super) fn keep(&self, bytes: u64) -> Result<(), FormatError> {
        let left = self.reader.allowance.get();
        let Some(left) = left.checked_sub(bytes) else {
            return Err(
                FieldPosition::new(self.place, self.offset).violates(format_args!(
                    "names, shapes and properties take more than {MAX_RETAINED_BYTES} bytes"
                )),
            );
        };
        self.reader.allowance.set(left);
        Ok(())
    }

    /// Reads `length` bytes; the caller has checked that they are few.
    fn bytes(&self, start: u64, length: u64) -> Result<Vec<u8>, FormatError> {
        let mut bytes = vec![0; usize::try_from(length).expect("checked to be small")];
        self.reader.read(&self.place, start, &mut bytes)?;
        Ok(bytes)
    }

    fn delimited(&self) -> Result<(u64, u64), FormatError> {
        match self.payload {
            WirePayload::Bytes { start, length } => Ok((start, length)),
            _ => Err(self.wrong("a length-delimited value")),
        }
    }

    fn wrong(&self, expected: &'static str) -> FormatError {
        FieldPosition::new(self.place, self.offset).expected(
            expected,
            match self.payload {
                WirePayload::Varint { .. } => "a varint",
                WirePayload::Fixed64 => "8 fixed bytes",
                WirePayload::Fixed32 => "4 fixed bytes",
                WirePayload::Bytes { .. } => "a length-delimited value",
            },
        )
    }
}
