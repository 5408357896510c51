//! The protobuf wire format: fields of a message between two file offsets.
//!
//! Format: <https://protobuf.dev/programming-guides/encoding/>. Knows fields by the tables of
//! [`super::schema`] and nothing of what they mean.
//! Invariant: a field never reaches past the message it is in; no length is allocated before it
//! was found to be small and inside the file.

use std::cell::Cell;

use super::Error;
use super::place::{Name, Place};
use super::schema::{Def, MAX_FIELDS, Repeat};
use crate::source::Pages;

/// Longest name in bytes.
pub(super) const MAX_TEXT: u64 = 64 * 1024;
/// Longest part of a text that is only shown, in bytes.
const MAX_EXCERPT: u64 = 4096;
/// Most bytes that everything kept of a model may take.
const ALLOWANCE: u64 = 32 * 1024 * 1024;
/// What a kept text costs beyond its bytes, roughly.
const TEXT_OVERHEAD: u64 = 64;
const MAX_VARINT: u64 = 10;
const MAX_FIELD_NUMBER: u64 = (1 << 29) - 1;

/// The file, and how much may still be kept of it.
pub(super) struct Reader<'a> {
    pages: &'a Pages<'a>,
    allowance: Cell<u64>,
}

/// A message being read, field after field.
pub(super) struct Message<'a> {
    reader: &'a Reader<'a>,
    place: &'a Place<'a>,
    schema: &'static [Def],
    at: u64,
    end: u64,
    seen: [u64; MAX_FIELDS],
}

/// One field of a message, its value not yet read if it has a length.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    reader: &'a Reader<'a>,
    place: Place<'a>,
    /// Where its tag begins.
    offset: u64,
    payload: Payload,
}

#[derive(Clone, Copy)]
enum Payload {
    Varint { value: u64, size: u64 },
    Fixed64,
    Fixed32,
    Bytes { start: u64, length: u64 },
}

impl<'a> Reader<'a> {
    pub(super) fn new(pages: &'a Pages<'a>) -> Self {
        let allowance = Cell::new(ALLOWANCE);
        Self { pages, allowance }
    }

    fn read(&self, place: &Place<'_>, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        self.pages
            .read(offset, buffer)
            .map_err(|error| Error::Read {
                place: place.to_string(),
                error,
            })
    }

    /// The varint at `offset` of a message that ends at `end`, and its size in bytes.
    fn varint(&self, place: &Place<'_>, offset: u64, end: u64) -> Result<(u64, u64), Error> {
        let left = end - offset;
        let mut buffer = [0; 10];
        let window = &mut buffer[..usize::try_from(left.min(MAX_VARINT)).expect("at most 10")];
        self.read(place, offset, window)?;
        let mut value = 0;
        for (size, &byte) in (1..).zip(window.iter()) {
            if size == MAX_VARINT && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * (size - 1));
            if byte & 0x80 == 0 {
                return Ok((value, size));
            }
        }
        let place = place.to_string();
        Err(if left < MAX_VARINT {
            Error::NumberCut {
                place,
                offset,
                expected: "a varint",
                left,
            }
        } else {
            Error::VarintTooLong { place, offset }
        })
    }
}

impl<'a> Message<'a> {
    /// The whole file as one message.
    pub(super) fn whole_file(
        reader: &'a Reader<'a>,
        place: &'a Place<'a>,
        schema: &'static [Def],
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

    /// The next field; `None` at the end of the message.
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>, Error> {
        if self.at == self.end {
            return Ok(None);
        }
        let offset = self.at;
        let (tag, size) = self.reader.varint(self.place, offset, self.end)?;
        self.at += size;
        let place = self.enter(tag >> 3, offset)?;
        let payload = self.payload(&place, offset, tag & 7)?;
        Ok(Some(Field {
            reader: self.reader,
            place,
            offset,
            payload,
        }))
    }

    /// Checks a field number and counts its occurrences.
    fn enter(&mut self, number: u64, offset: u64) -> Result<Place<'a>, Error> {
        if !(1..=MAX_FIELD_NUMBER).contains(&number) {
            return Err(Error::FieldNumber {
                place: self.place.to_string(),
                offset,
                found: number,
            });
        }
        let mut place = Place {
            parent: Some(self.place),
            name: Name::Number(number),
            index: None,
        };
        let mut fields = self.schema.iter().zip(&mut self.seen);
        if let Some((def, seen)) = fields.find(|(def, _)| u64::from(def.number) == number) {
            place.name = Name::Known(def.name);
            place.index = (def.repeat == Repeat::Adds).then_some(*seen);
            if def.repeat == Repeat::Refused && *seen > 0 {
                let place = place.to_string();
                return Err(Error::Repeated { place, offset });
            }
            *seen += 1;
        }
        Ok(place)
    }

    /// Reads a number, or the length of what has one, and steps over the value.
    fn payload(&mut self, place: &Place<'_>, offset: u64, wire: u64) -> Result<Payload, Error> {
        match wire {
            0 => {
                let (value, size) = self.reader.varint(place, self.at, self.end)?;
                self.at += size;
                Ok(Payload::Varint { value, size })
            }
            1 => self.fixed(place, 8, "8 bytes", Payload::Fixed64),
            2 => self.delimited(place),
            5 => self.fixed(place, 4, "4 bytes", Payload::Fixed32),
            other => Err(Error::UnknownWireType {
                place: place.to_string(),
                offset,
                found: u8::try_from(other).expect("three bits"),
            }),
        }
    }

    fn fixed(
        &mut self,
        place: &Place<'_>,
        size: u64,
        expected: &'static str,
        payload: Payload,
    ) -> Result<Payload, Error> {
        let left = self.end - self.at;
        if left < size {
            return Err(Error::NumberCut {
                place: place.to_string(),
                offset: self.at,
                expected,
                left,
            });
        }
        self.at += size;
        Ok(payload)
    }

    fn delimited(&mut self, place: &Place<'_>) -> Result<Payload, Error> {
        let (length, size) = self.reader.varint(place, self.at, self.end)?;
        let start = self.at + size;
        let left = self.end - start;
        if length > left {
            return Err(Error::LengthPastEnd {
                place: place.to_string(),
                offset: start,
                length,
                left,
            });
        }
        self.at = start + length;
        Ok(Payload::Bytes { start, length })
    }
}

impl<'a> Field<'a> {
    /// Its name; empty for a field that the schema does not have.
    pub(super) fn name(&self) -> &'static str {
        match self.place.name {
            Name::Known(name) => name,
            Name::Number(_) => "",
        }
    }

    /// Where it is, for an error.
    pub(super) fn place(&self) -> &Place<'a> {
        &self.place
    }

    /// The file offset of its tag.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes its value takes in the file.
    pub(super) fn size(&self) -> u64 {
        match self.payload {
            Payload::Varint { size, .. } => size,
            Payload::Fixed64 => 8,
            Payload::Fixed32 => 4,
            Payload::Bytes { length, .. } => length,
        }
    }

    /// Its value as a signed number.
    pub(super) fn int(&self) -> Result<i64, Error> {
        match self.payload {
            Payload::Varint { value, .. } => Ok(value.cast_signed()),
            _ => Err(self.wrong("a varint")),
        }
    }

    /// Its values, written one by one or packed.
    pub(super) fn each_int(&self, mut each: impl FnMut(i64)) -> Result<(), Error> {
        let Payload::Bytes { start, length } = self.payload else {
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

    /// Its value as a message.
    pub(super) fn message(&self, schema: &'static [Def]) -> Result<Message<'_>, Error> {
        let (start, length) = self.delimited()?;
        Ok(Message {
            reader: self.reader,
            place: &self.place,
            schema,
            at: start,
            end: start + length,
            seen: [0; MAX_FIELDS],
        })
    }

    /// Its value as bytes to compare with a name; `None` if it is longer than any name.
    pub(super) fn name_bytes(&self) -> Result<Option<Vec<u8>>, Error> {
        let (start, length) = self.delimited()?;
        if length > MAX_TEXT {
            return Ok(None);
        }
        self.bytes(start, length).map(Some)
    }

    /// Its value as the bytes of a name.
    pub(super) fn identifier(&self) -> Result<Vec<u8>, Error> {
        let (start, length) = self.delimited()?;
        if length > MAX_TEXT {
            return Err(Error::TextTooLong {
                place: self.place.to_string(),
                offset: start,
                length,
                limit: MAX_TEXT,
            });
        }
        self.bytes(start, length)
    }

    /// Its value as text, to be forgotten soon.
    pub(super) fn text(&self) -> Result<String, Error> {
        let (start, _) = self.delimited()?;
        String::from_utf8(self.identifier()?).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Error::NotUtf8 {
                place: self.place.to_string(),
                offset: start + at as u64,
                found: error.as_bytes()[at],
            }
        })
    }

    /// Its value as text to keep.
    pub(super) fn kept_text(&self) -> Result<String, Error> {
        let text = self.text()?;
        self.keep(text.len() as u64 + TEXT_OVERHEAD)?;
        Ok(text)
    }

    /// The beginning of its value as text to keep and to show, whatever its bytes are.
    pub(super) fn excerpt(&self) -> Result<String, Error> {
        let (start, length) = self.delimited()?;
        let bytes = self.bytes(start, length.min(MAX_EXCERPT))?;
        // A character cut at the end is dropped, any other wrong byte becomes U+FFFD.
        let mut text = String::new();
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        if length > MAX_EXCERPT {
            text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
            text.push('…');
        }
        self.keep(text.len() as u64 + TEXT_OVERHEAD)?;
        Ok(text)
    }

    /// Takes so many bytes from the allowance for what is kept.
    pub(super) fn keep(&self, bytes: u64) -> Result<(), Error> {
        let left = self.reader.allowance.get();
        let Some(left) = left.checked_sub(bytes) else {
            return Err(Error::TooMuch {
                place: self.place.to_string(),
                offset: self.offset,
                limit: ALLOWANCE,
            });
        };
        self.reader.allowance.set(left);
        Ok(())
    }

    /// `length` bytes, which the caller has found to be few.
    fn bytes(&self, start: u64, length: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; usize::try_from(length).expect("checked to be small")];
        self.reader.read(&self.place, start, &mut bytes)?;
        Ok(bytes)
    }

    fn delimited(&self) -> Result<(u64, u64), Error> {
        match self.payload {
            Payload::Bytes { start, length } => Ok((start, length)),
            _ => Err(self.wrong("a length and so many bytes")),
        }
    }

    fn wrong(&self, expected: &'static str) -> Error {
        Error::WrongWireType {
            place: self.place.to_string(),
            offset: self.offset,
            expected,
            found: match self.payload {
                Payload::Varint { .. } => "a varint",
                Payload::Fixed64 => "8 fixed bytes",
                Payload::Fixed32 => "4 fixed bytes",
                Payload::Bytes { .. } => "a length and so many bytes",
            },
        }
    }
}
