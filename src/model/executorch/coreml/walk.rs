//! The protobuf wire format of a file, field by field: what is not asked for is stepped over, not read.
//!
//! For what describes a package; `proto` is the same over bytes in memory, for what is executed. Invariant: a
//! field never reaches past its message; nothing is allocated for a length that was not found to be small, and
//! what is taken into memory is counted against [`MAX_TAKEN`].

use std::cell::Cell;

use super::super::error::{Error, Place};
use super::super::storage::ByteRange;
use super::proto;
use crate::source::Pages;

/// Deepest message that is read; loops and branches lie in one another.
const MAX_DEPTH: u8 = 64;
/// Longest text, and longest message that is read whole.
const MAX_TEXT: u64 = 1 << 16;
/// Longest tag with a number behind it.
const MAX_HEAD: u64 = 20;
/// Most bytes that are taken into memory of one payload, one after another.
const MAX_TAKEN: u64 = 32 << 20;

/// A file that is walked.
pub(in crate::model) struct Walk<'a> {
    pages: &'a Pages<'a>,
    taken: Cell<u64>,
}

/// A message between two places of the file.
#[derive(Clone, Copy)]
pub(in crate::model) struct Message<'a> {
    walk: &'a Walk<'a>,
    bytes: ByteRange,
    name: &'static str,
    depth: u8,
}

/// A field of a message.
#[derive(Clone, Copy)]
pub(in crate::model) struct Field<'a> {
    /// Its number.
    pub(in crate::model) number: u64,
    payload: Payload,
    offset: u64,
    message: Message<'a>,
}

#[derive(Clone, Copy)]
enum Payload {
    Varint(u64),
    Fixed,
    Bytes(ByteRange),
}

impl<'a> Walk<'a> {
    /// Nothing taken yet.
    pub(in crate::model) fn new(pages: &'a Pages<'a>) -> Self {
        Self {
            pages,
            taken: Cell::new(0),
        }
    }

    /// The outermost message.
    pub(in crate::model) fn message(&'a self, bytes: ByteRange, name: &'static str) -> Message<'a> {
        Message {
            walk: self,
            bytes,
            name,
            depth: 0,
        }
    }
}

impl<'a> Message<'a> {
    /// Where it stands.
    pub(super) fn here(&self) -> Place {
        self.place(self.bytes.offset)
    }

    /// Its fields in their order.
    pub(in crate::model) fn fields(self) -> impl Iterator<Item = Result<Field<'a>, Error>> {
        let end = self.bytes.offset.saturating_add(self.bytes.size);
        let mut at = self.bytes.offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let field = self.next(at, end);
            at = field.as_ref().map_or(end, |(_, next)| *next);
            Some(field.map(|(field, _)| field))
        })
    }

    /// The field at a place, and where the next one is.
    fn next(self, at: u64, end: u64) -> Result<(Field<'a>, u64), Error> {
        let place = || self.place(at);
        let wrong = || Error::Wire { place: place() };
        let mut head = [0; 20];
        let window = usize::try_from((end - at).min(MAX_HEAD)).expect("at most 20");
        let window = &mut head[..window];
        let read = self.walk.pages.read(at, window);
        read.map_err(|error| Error::Read {
            place: place(),
            error,
        })?;
        let mut rest = &*window;
        let tag = proto::varint(&mut rest).ok_or_else(wrong)?;
        let number = match tag & 7 {
            0 | 2 => proto::varint(&mut rest).ok_or_else(wrong)?,
            _ => 0,
        };
        let start = at + (window.len() - rest.len()) as u64;
        let (payload, size) = match tag & 7 {
            0 => (Payload::Varint(number), 0),
            1 => (Payload::Fixed, 8),
            2 => {
                let bytes = ByteRange {
                    offset: start,
                    size: number,
                };
                (Payload::Bytes(bytes), number)
            }
            5 => (Payload::Fixed, 4),
            _ => return Err(wrong()),
        };
        let next = start.checked_add(size).filter(|next| *next <= end);
        let field = Field {
            number: tag >> 3,
            payload,
            offset: at,
            message: self,
        };
        Ok((field, next.ok_or_else(wrong)?))
    }

    fn place(&self, offset: u64) -> Place {
        Place {
            path: format!("Core ML {}", self.name),
            offset,
        }
    }
}

impl<'a> Field<'a> {
    fn wrong(&self) -> Error {
        Error::Wire {
            place: self.message.place(self.offset),
        }
    }

    /// Its value, if it is a number.
    pub(in crate::model) fn value(&self) -> Option<u64> {
        match self.payload {
            Payload::Varint(value) => Some(value),
            _ => None,
        }
    }

    /// Where its bytes are, if it has a length.
    pub(in crate::model) fn inside(&self) -> Option<ByteRange> {
        match self.payload {
            Payload::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A message.
    pub(super) fn message(&self, name: &'static str) -> Result<Message<'a>, Error> {
        let depth = self.message.depth + 1;
        if depth > MAX_DEPTH {
            return Err(self.wrong());
        }
        Ok(Message {
            walk: self.message.walk,
            bytes: self.range()?,
            name,
            depth,
        })
    }

    /// Key and value of a map's entry.
    pub(super) fn entry(&self) -> Result<(String, Option<Field<'a>>), Error> {
        let (mut key, mut value) = (String::new(), None);
        for field in self.message("entry")?.fields() {
            let field = field?;
            match field.number {
                1 => key = field.text()?,
                2 => value = Some(field),
                _ => {}
            }
        }
        Ok((key, value))
    }

    /// Where the bytes of its value are.
    pub(super) fn range(&self) -> Result<ByteRange, Error> {
        self.inside().ok_or_else(|| self.wrong())
    }

    /// Its value, read whole; it must be short.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, Error> {
        let range = self.range()?;
        let place = || self.message.place(self.offset);
        let walk = self.message.walk;
        let taken = walk.taken.get().saturating_add(range.size);
        for (size, most) in [(range.size, MAX_TEXT), (taken, MAX_TAKEN)] {
            if size > most {
                return Err(Error::TooMuch {
                    place: place(),
                    most,
                });
            }
        }
        walk.taken.set(taken);
        let size = usize::try_from(range.size).expect("at most 64 KiB");
        let bytes = walk.pages.bytes(range.offset, size);
        bytes.map_err(|error| Error::Read {
            place: place(),
            error,
        })
    }

    /// A text.
    pub(super) fn text(&self) -> Result<String, Error> {
        String::from_utf8(self.bytes()?).map_err(|_| self.wrong())
    }

    /// An unsigned integer.
    pub(super) fn number(&self) -> Result<u64, Error> {
        self.value().ok_or_else(|| self.wrong())
    }

    /// Unsigned integers, packed or one by one.
    pub(super) fn numbers(&self, into: &mut Vec<u64>) -> Result<(), Error> {
        let Payload::Bytes(_) = self.payload else {
            into.push(self.number()?);
            return Ok(());
        };
        let bytes = self.bytes()?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            into.push(proto::varint(&mut rest).ok_or_else(|| self.wrong())?);
        }
        Ok(())
    }
}
