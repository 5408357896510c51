//! A streaming parser for the protobuf wire format in a file: unrequested fields are skipped
//! without reading them.
//!
//! It serves descriptions of packages; `proto` parses bytes in memory for execution. Invariant: a
//! field never extends past its message, memory is allocated only after a length was checked, and
//! all bytes read are counted against [`MAX_READ_BYTES`].

use std::cell::Cell;

use super::super::storage::ByteRange;
use super::proto;
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

/// Maximum nesting depth of messages; loops and branches nest.
const MAX_DEPTH: u8 = 64;
/// Maximum length of a text, and of a message that is read whole, in bytes.
const MAX_VALUE_BYTES: u64 = 1 << 16;
/// Maximum length of a tag with the following number, in bytes.
const MAX_TAG_BYTES: u64 = 20;
/// Maximum total number of bytes that are read into memory per payload.
const MAX_READ_BYTES: u64 = 32 << 20;

/// A file being parsed, with the number of bytes read so far.
pub(crate) struct Walk<'a> {
    pages: &'a Pages<'a>,
    bytes_read: Cell<u64>,
}

/// A message between two file offsets.
#[derive(Clone, Copy)]
pub(crate) struct WalkMessage<'a> {
    walk: &'a Walk<'a>,
    bytes: ByteRange,
    name: &'static str,
    depth: u8,
}

/// A field of a message.
#[derive(Clone, Copy)]
pub(crate) struct WalkField<'a> {
    /// Its number.
    pub(crate) number: u64,
    payload: WalkPayload,
    offset: u64,
    message: WalkMessage<'a>,
}

#[derive(Clone, Copy)]
enum WalkPayload {
    Varint(u64),
    Fixed,
    Bytes(ByteRange),
}

impl<'a> Walk<'a> {
    /// Starts with no bytes read.
    pub(crate) fn new(pages: &'a Pages<'a>) -> Self {
        Self {
            pages,
            bytes_read: Cell::new(0),
        }
    }

    /// Returns the outermost message.
    pub(crate) fn message(&'a self, bytes: ByteRange, name: &'static str) -> WalkMessage<'a> {
        WalkMessage {
            walk: self,
            bytes,
            name,
            depth: 0,
        }
    }
}

impl<'a> WalkMessage<'a> {
    /// Returns its position.
    pub(super) fn here(&self) -> FieldPosition {
        self.place(self.bytes.offset)
    }

    /// Iterates over its fields in order.
    pub(crate) fn fields(self) -> impl Iterator<Item = Result<WalkField<'a>, FormatError>> {
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

    /// Iterates over its fields with this number, in order.
    pub(crate) fn numbered(
        self,
        number: u64,
    ) -> impl Iterator<Item = Result<WalkField<'a>, FormatError>> {
        let is_other = move |field: &WalkField<'_>| field.number != number;
        self.fields()
            .filter(move |field| !field.as_ref().is_ok_and(is_other))
    }

    /// Returns the field at an offset, and the offset of the next one.
    fn next(self, at: u64, end: u64) -> Result<(WalkField<'a>, u64), FormatError> {
        let place = || self.place(at);
        let wrong = || place().not_protobuf();
        let mut head = [0; 20];
        let window = usize::try_from((end - at).min(MAX_TAG_BYTES)).expect("at most 20");
        let window = &mut head[..window];
        let read = self.walk.pages.read(at, window);
        read.map_err(|error| place().unreadable(&error))?;
        let mut rest = &*window;
        let tag = proto::varint(&mut rest).ok_or_else(wrong)?;
        let number = match tag & 7 {
            0 | 2 => proto::varint(&mut rest).ok_or_else(wrong)?,
            _ => 0,
        };
        let start = at + (window.len() - rest.len()) as u64;
        let (payload, size) = match tag & 7 {
            0 => (WalkPayload::Varint(number), 0),
            1 => (WalkPayload::Fixed, 8),
            2 => {
                let bytes = ByteRange {
                    offset: start,
                    size: number,
                };
                (WalkPayload::Bytes(bytes), number)
            }
            5 => (WalkPayload::Fixed, 4),
            _ => return Err(wrong()),
        };
        let next = start.checked_add(size).filter(|next| *next <= end);
        let field = WalkField {
            number: tag >> 3,
            payload,
            offset: at,
            message: self,
        };
        Ok((field, next.ok_or_else(wrong)?))
    }

    fn place(&self, offset: u64) -> FieldPosition {
        FieldPosition::new(format_args!("Core ML {}", self.name), offset)
    }
}

impl<'a> WalkField<'a> {
    fn wrong(&self) -> FormatError {
        self.message.place(self.offset).not_protobuf()
    }

    /// Returns its value, if it is a number.
    pub(crate) fn value(&self) -> Option<u64> {
        match self.payload {
            WalkPayload::Varint(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the range of its bytes, if it is length-delimited.
    pub(crate) fn inside(&self) -> Option<ByteRange> {
        match self.payload {
            WalkPayload::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns its value as a message.
    pub(super) fn message(&self, name: &'static str) -> Result<WalkMessage<'a>, FormatError> {
        let depth = self.message.depth + 1;
        if depth > MAX_DEPTH {
            return Err(self.wrong());
        }
        Ok(WalkMessage {
            walk: self.message.walk,
            bytes: self.range()?,
            name,
            depth,
        })
    }

    /// Returns key and value of a map entry.
    pub(super) fn entry(&self) -> Result<(String, Option<WalkField<'a>>), FormatError> {
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

    /// Returns the range of its value; fails if it is not length-delimited.
    pub(super) fn range(&self) -> Result<ByteRange, FormatError> {
        self.inside().ok_or_else(|| self.wrong())
    }

    /// Reads its whole value, which must be short.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, FormatError> {
        let range = self.range()?;
        let place = || self.message.place(self.offset);
        let walk = self.message.walk;
        let taken = walk.bytes_read.get().saturating_add(range.size);
        for (size, most) in [(range.size, MAX_VALUE_BYTES), (taken, MAX_READ_BYTES)] {
            if size > most {
                return Err(place().too_large(most));
            }
        }
        walk.bytes_read.set(taken);
        let size = usize::try_from(range.size).expect("at most 64 KiB");
        let bytes = walk.pages.bytes(range.offset, size);
        bytes.map_err(|error| place().unreadable(&error))
    }

    /// Returns its value as text.
    pub(super) fn text(&self) -> Result<String, FormatError> {
        String::from_utf8(self.bytes()?).map_err(|_| self.wrong())
    }

    /// Returns its value as an unsigned integer.
    pub(super) fn number(&self) -> Result<u64, FormatError> {
        self.value().ok_or_else(|| self.wrong())
    }

    /// Reads unsigned integers, packed or one by one.
    pub(super) fn numbers(&self, into: &mut Vec<u64>) -> Result<(), FormatError> {
        let WalkPayload::Bytes(_) = self.payload else {
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
