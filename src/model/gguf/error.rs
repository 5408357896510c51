//! What can be broken in a GGUF file, one variant for each invariant.

use crate::model::Breach;
use crate::source::pages::PageError;

/// What is broken in a GGUF file. Places are paths (`metadata[3].value`, `tensors[0].offset`).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes cannot be had, or the file needs more reads than any real header.
    #[error("{place}: {error}")]
    Read {
        /// What is being read.
        place: String,
        /// Why not.
        error: PageError,
    },
    /// Other first bytes.
    #[error("magic at offset 0: expected \"GGUF\", found {found}")]
    Magic {
        /// What is there.
        found: String,
    },
    /// A version that is not read here.
    #[error("version at offset 4: expected 2 or 3, little-endian, found {found}")]
    Version {
        /// The version in words.
        found: String,
    },
    /// More of something than the file has room for.
    #[error(
        "{place} at offset {offset}: {found} of them do not fit the {left} bytes that are left"
    )]
    Count {
        /// The count.
        place: String,
        /// Where it stands.
        offset: u64,
        /// The count.
        found: u64,
        /// Bytes behind it.
        left: u64,
    },
    /// A length that leads out of the file.
    #[error("{place} at offset {offset}: needs {length} bytes, but the file has {left} left")]
    LengthPastEnd {
        /// The text.
        place: String,
        /// Where its length stands.
        offset: u64,
        /// Its length in bytes.
        length: u64,
        /// Bytes behind it.
        left: u64,
    },
    /// A name that is no text.
    #[error("{place} at offset {offset}: expected a name in UTF-8 of at most {most} bytes")]
    Name {
        /// The name.
        place: String,
        /// Where its length stands.
        offset: u64,
        /// The most bytes it may have.
        most: u64,
    },
    /// A name that was there before.
    #[error("{place} at offset {offset}: the name {name:?} stands there twice")]
    Twice {
        /// The second one.
        place: String,
        /// Where it stands.
        offset: u64,
        /// The name.
        name: String,
    },
    /// A number that the format does not allow there.
    #[error("{place} at offset {offset}: expected {expected}, found {found}")]
    Value {
        /// The number.
        place: String,
        /// Where it stands.
        offset: u64,
        /// What is allowed.
        expected: String,
        /// The number.
        found: u64,
    },
    /// Tensors in each other.
    #[error(
        "{place} at offset {offset}: its data begins at {found}, inside that of {other:?}, which ends at {end}"
    )]
    Overlap {
        /// The tensor's place.
        place: String,
        /// File offset of its data.
        offset: u64,
        /// The same, from the beginning of the data.
        found: u64,
        /// The tensor before it.
        other: String,
        /// Where that ends.
        end: u64,
    },
    /// Data that the file does not have.
    #[error(
        "{place}: its data, {size} bytes at offset {offset}, leads out of the file, which has {len} bytes"
    )]
    Truncated {
        /// The tensor's place.
        place: String,
        /// File offset of its data.
        offset: u64,
        /// Bytes of its data.
        size: u64,
        /// Bytes of the file.
        len: u64,
    },
    /// More names than a description may take.
    #[error("{place}: names, shapes and texts take more than {most} bytes")]
    TooMuch {
        /// Where it became too much.
        place: String,
        /// The most.
        most: u64,
    },
}

impl Breach for Error {
    fn offset(&self) -> Option<u64> {
        match self {
            Self::Read { error, .. } => Some(error.offset()),
            Self::Magic { .. } => Some(0),
            Self::Version { .. } => Some(4),
            Self::Count { offset, .. }
            | Self::LengthPastEnd { offset, .. }
            | Self::Name { offset, .. }
            | Self::Twice { offset, .. }
            | Self::Value { offset, .. }
            | Self::Overlap { offset, .. }
            | Self::Truncated { offset, .. } => Some(*offset),
            Self::TooMuch { .. } => None,
        }
    }
}
