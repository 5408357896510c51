//! Errors of the GGUF reader, one variant per invariant.

use crate::FormatError;
use pkgtool_base::source::pages::PageError;

/// A violation of the GGUF format. Places are paths (`metadata[3].value`, `tensors[0].offset`).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes cannot be read, or the file needs more reads than any real header.
    #[error("{place}: {error}")]
    Read {
        /// The item being read.
        place: String,
        /// The cause.
        error: PageError,
    },
    /// The file does not begin with the magic number.
    #[error("magic at offset 0: expected \"GGUF\", found {found}")]
    Magic {
        /// The bytes found instead.
        found: String,
    },
    /// The version is unsupported.
    #[error("version at offset 4: expected 2 or 3, little-endian, found {found}")]
    Version {
        /// Description of the version.
        found: String,
    },
    /// A count exceeds the size of the file.
    #[error(
        "{place} at offset {offset}: a count of {found} does not fit the remaining {left} bytes"
    )]
    Count {
        /// Path of the count.
        place: String,
        /// File offset of the count.
        offset: u64,
        /// The count.
        found: u64,
        /// Number of bytes after the count.
        left: u64,
    },
    /// A length exceeds the size of the file.
    #[error("{place} at offset {offset}: needs {length} bytes, but the file has {left} left")]
    LengthPastEnd {
        /// Path of the text.
        place: String,
        /// File offset of its length.
        offset: u64,
        /// Its length in bytes.
        length: u64,
        /// Number of bytes after the length.
        left: u64,
    },
    /// A name is too long or not valid UTF-8.
    #[error("{place} at offset {offset}: expected a name in UTF-8 of at most {most} bytes")]
    Name {
        /// Path of the name.
        place: String,
        /// File offset of its length.
        offset: u64,
        /// Maximum length in bytes.
        most: u64,
    },
    /// A name occurs twice.
    #[error("{place} at offset {offset}: duplicate name {name:?}")]
    DuplicateName {
        /// Path of the second occurrence.
        place: String,
        /// File offset of the second occurrence.
        offset: u64,
        /// The name.
        name: String,
    },
    /// A number has a value that the format forbids.
    #[error("{place} at offset {offset}: expected {expected}, found {found}")]
    Value {
        /// Path of the number.
        place: String,
        /// File offset of the number.
        offset: u64,
        /// The allowed values.
        expected: String,
        /// The number in the file.
        found: u64,
    },
    /// The data of two tensors overlaps.
    #[error(
        "{place} at offset {offset}: its data begins at {found}, inside that of {other:?}, which ends at {end}"
    )]
    Overlap {
        /// Path of the tensor.
        place: String,
        /// File offset of its data.
        offset: u64,
        /// Offset of its data within the data section.
        found: u64,
        /// Name of the preceding tensor.
        other: String,
        /// End of the preceding tensor's data.
        end: u64,
    },
    /// The data of a tensor extends past the end of the file.
    #[error(
        "{place}: its data, {size} bytes at offset {offset}, extends past the end of the file, which has {len} bytes"
    )]
    Truncated {
        /// Path of the tensor.
        place: String,
        /// File offset of its data.
        offset: u64,
        /// Size of its data in bytes.
        size: u64,
        /// Size of the file in bytes.
        len: u64,
    },
    /// The description of the file exceeds its memory limit.
    #[error("{place}: names, shapes and texts take more than {most} bytes")]
    DescriptionTooLarge {
        /// Path of the item that exceeded the limit.
        place: String,
        /// The limit in bytes.
        most: u64,
    },
}

impl FormatError for Error {
    fn offset(&self) -> Option<u64> {
        match self {
            Self::Read { error, .. } => Some(error.offset()),
            Self::Magic { .. } => Some(0),
            Self::Version { .. } => Some(4),
            Self::Count { offset, .. }
            | Self::LengthPastEnd { offset, .. }
            | Self::Name { offset, .. }
            | Self::DuplicateName { offset, .. }
            | Self::Value { offset, .. }
            | Self::Overlap { offset, .. }
            | Self::Truncated { offset, .. } => Some(*offset),
            Self::DescriptionTooLarge { .. } => None,
        }
    }
}
