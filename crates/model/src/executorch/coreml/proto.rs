//! A parser for the protobuf wire format in memory:
//! <https://protobuf.dev/programming-guides/encoding/>.
//!
//! Invariant: a field never extends past its message, and memory is allocated only for bytes that
//! exist.

use crate::{FieldPosition, FormatError};

/// Maximum nesting depth of messages; those of the schema have ten levels.
const MAX_DEPTH: u8 = 24;

/// A message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProtoMessage<'a> {
    bytes: &'a [u8],
    /// File offset of its bytes.
    offset: u64,
    name: &'static str,
    depth: u8,
}

/// A field of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProtoField<'a> {
    /// Its number.
    pub(crate) number: u64,
    payload: ProtoPayload<'a>,
    offset: u64,
    message: &'static str,
    depth: u8,
}

#[derive(Debug, Clone, Copy)]
enum ProtoPayload<'a> {
    Varint(u64),
    Fixed32([u8; 4]),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
}

impl<'a> ProtoMessage<'a> {
    /// Creates the outermost message; its bytes begin at `offset` of the file.
    pub(crate) fn new(bytes: &'a [u8], offset: u64, name: &'static str) -> Self {
        Self {
            bytes,
            offset,
            name,
            depth: 0,
        }
    }

    /// Returns its position.
    pub(crate) fn place(&self) -> FieldPosition {
        place(self.name, self.offset)
    }

    /// Iterates over its fields in order.
    pub(crate) fn fields(self) -> impl Iterator<Item = Result<ProtoField<'a>, FormatError>> {
        let mut rest = self.bytes;
        let mut failed = false;
        std::iter::from_fn(move || {
            if rest.is_empty() || failed {
                return None;
            }
            let at = self.offset + (self.bytes.len() - rest.len()) as u64;
            let field = next(&mut rest, at, self.name, self.depth);
            failed = field.is_none();
            let broken = || place(self.name, at).not_protobuf();
            Some(field.ok_or_else(broken))
        })
    }
}

fn place(name: &str, offset: u64) -> FieldPosition {
    FieldPosition::new(format_args!("Core ML {name}"), offset)
}

fn next<'a>(
    rest: &mut &'a [u8],
    offset: u64,
    message: &'static str,
    depth: u8,
) -> Option<ProtoField<'a>> {
    let tag = varint(rest)?;
    let payload = match tag & 7 {
        0 => ProtoPayload::Varint(varint(rest)?),
        1 => {
            let (eight, after) = rest.split_first_chunk::<8>()?;
            *rest = after;
            ProtoPayload::Fixed64(*eight)
        }
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            let (bytes, after) = rest.split_at_checked(length)?;
            *rest = after;
            ProtoPayload::Bytes(bytes)
        }
        5 => {
            let (four, after) = rest.split_first_chunk::<4>()?;
            *rest = after;
            ProtoPayload::Fixed32(*four)
        }
        _ => return None,
    };
    Some(ProtoField {
        number: tag >> 3,
        payload,
        offset,
        message,
        depth,
    })
}

/// Removes the varint at the beginning and returns it.
pub(super) fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in 0..10 {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << (7 * shift);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

impl<'a> ProtoField<'a> {
    /// Returns key and value of the map entry that it holds.
    pub(crate) fn map_entry(&self) -> Result<(String, Option<ProtoMessage<'a>>), FormatError> {
        let (mut key, mut value) = (String::new(), None);
        for field in self.message("entry")?.fields() {
            let field = field?;
            match field.number {
                1 => key = field.text()?,
                2 => value = Some(field.message("value")?),
                _ => {}
            }
        }
        Ok((key, value))
    }

    fn wrong(&self) -> FormatError {
        place(self.message, self.offset).not_protobuf()
    }

    /// Returns its position for an error.
    pub(crate) fn place(&self) -> FieldPosition {
        place(self.message, self.offset)
    }

    /// Returns its value as a message.
    pub(crate) fn message(&self, name: &'static str) -> Result<ProtoMessage<'a>, FormatError> {
        let bytes = self.bytes()?;
        if self.depth >= MAX_DEPTH {
            return Err(self.wrong());
        }
        Ok(ProtoMessage {
            bytes,
            offset: self.offset,
            name,
            depth: self.depth + 1,
        })
    }

    /// Returns its value as bytes.
    pub(crate) fn bytes(&self) -> Result<&'a [u8], FormatError> {
        match self.payload {
            ProtoPayload::Bytes(bytes) => Ok(bytes),
            _ => Err(self.wrong()),
        }
    }

    /// Returns its value as text.
    pub(crate) fn text(&self) -> Result<String, FormatError> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(str::to_owned).map_err(|_| self.wrong())
    }

    /// Returns its value as an unsigned integer.
    pub(crate) fn number(&self) -> Result<u64, FormatError> {
        match self.payload {
            ProtoPayload::Varint(value) => Ok(value),
            _ => Err(self.wrong()),
        }
    }

    /// Reads signed integers, packed or one by one.
    pub(crate) fn integers(&self, into: &mut Vec<i64>) -> Result<(), FormatError> {
        match self.payload {
            ProtoPayload::Varint(value) => into.push(value.cast_signed()),
            ProtoPayload::Bytes(mut bytes) => {
                while !bytes.is_empty() {
                    let value = varint(&mut bytes).ok_or_else(|| self.wrong())?;
                    into.push(value.cast_signed());
                }
            }
            _ => return Err(self.wrong()),
        }
        Ok(())
    }

    /// Reads float32 or float64 values, packed or one by one.
    pub(crate) fn floats(&self, wide: bool, into: &mut Vec<f64>) -> Result<(), FormatError> {
        match self.payload {
            ProtoPayload::Fixed32(four) if !wide => into.push(f32::from_le_bytes(four).into()),
            ProtoPayload::Fixed64(eight) if wide => into.push(f64::from_le_bytes(eight)),
            ProtoPayload::Bytes(bytes) if wide => {
                let (eights, rest) = bytes.as_chunks::<8>();
                if !rest.is_empty() {
                    return Err(self.wrong());
                }
                into.extend(eights.iter().map(|eight| f64::from_le_bytes(*eight)));
            }
            ProtoPayload::Bytes(bytes) => {
                let (fours, rest) = bytes.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(self.wrong());
                }
                into.extend(
                    fours
                        .iter()
                        .map(|four| f64::from(f32::from_le_bytes(*four))),
                );
            }
            _ => return Err(self.wrong()),
        }
        Ok(())
    }
}
