//! The outer levels of a model file: fields of messages between two offsets, stepped over, not read.
//!
//! Weights of neural networks are deep inside, so nothing is read but tags and lengths. Invariant: a field never
//! reaches past its message; the budget of [`Pages`] bounds the walk.

use crate::model::executorch::body::ByteRange;
use crate::model::executorch::coreml::varint;
use crate::model::executorch::{Error, Place};
use crate::source::Pages;

/// Bytes that a tag and a length take at most.
const HEAD: usize = 20;

/// A field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Its number.
    pub(super) number: u64,
    /// Its value, if it is a number.
    pub(super) value: Option<u64>,
    /// Where its bytes are, if it has a length.
    pub(super) bytes: Option<ByteRange>,
}

/// Goes through the fields of the message in `range`, in their order.
pub(super) fn each_part<E: From<Error>>(
    pages: &Pages<'_>,
    range: ByteRange,
    name: &str,
    mut each: impl FnMut(Part) -> Result<(), E>,
) -> Result<(), E> {
    let end = range.offset + range.size;
    let mut at = range.offset;
    while at < end {
        let (part, next) = part(pages, at, end, name)?;
        each(part)?;
        at = next;
    }
    Ok(())
}

/// The field at an offset, and where the next begins.
fn part(pages: &Pages<'_>, at: u64, end: u64, name: &str) -> Result<(Part, u64), Error> {
    let place = || Place {
        path: format!("Core ML {name}"),
        offset: at,
    };
    let mut head = [0; HEAD];
    let size = usize::try_from(end - at).map_or(HEAD, |left| left.min(HEAD));
    pages
        .read(at, &mut head[..size])
        .map_err(|error| Error::Read {
            place: place(),
            error,
        })?;
    let mut rest = &head[..size];
    let wrong = || Error::Wire { place: place() };
    let tag = varint(&mut rest).ok_or_else(wrong)?;
    let after = |rest: &[u8]| at + (size - rest.len()) as u64;
    let mut part = Part {
        number: tag >> 3,
        value: None,
        bytes: None,
    };
    let next = match tag & 7 {
        0 => {
            part.value = Some(varint(&mut rest).ok_or_else(wrong)?);
            after(rest)
        }
        1 => after(rest) + 8,
        2 => {
            let size = varint(&mut rest).ok_or_else(wrong)?;
            let offset = after(rest);
            part.bytes = Some(ByteRange { offset, size });
            offset.checked_add(size).ok_or_else(wrong)?
        }
        5 => after(rest) + 4,
        _ => return Err(wrong()),
    };
    if next > end {
        return Err(wrong());
    }
    Ok((part, next))
}
