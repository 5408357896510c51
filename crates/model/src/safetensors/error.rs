//! Errors of the safetensors reader, one variant per invariant.

use std::io;

use crate::FormatError;

/// A violation of the safetensors format. Tensors have the names that the header gives them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes cannot be read.
    #[error("header: {0}")]
    Read(#[from] io::Error),
    /// The file is too short for the header's length.
    #[error("header length at offset 0: needs 8 bytes, but the file has {len}")]
    TooShort {
        /// Size of the file in bytes.
        len: u64,
    },
    /// The header exceeds the format's limit or the end of the file.
    #[error("header length at offset 0: expected at most {most} bytes, found {found}")]
    HeaderLength {
        /// Length of the header in bytes.
        found: u64,
        /// Maximum length, limited by the format and by the file size.
        most: u64,
    },
    /// The header does not begin with an object.
    #[error("header at offset 8: expected `{{`, found {found}")]
    NoObject {
        /// The content found instead.
        found: String,
    },
    /// The header is invalid JSON or has an unexpected structure.
    #[error("header, line {line}, column {column}: {reason}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
        /// The parser's error message.
        reason: String,
        /// File offset, if the header is a single line, as all writers produce it.
        offset: Option<u64>,
    },
    /// The dtype is unknown to the format.
    #[error("header.{name}.dtype: expected a safetensors dtype, found {found}")]
    DType {
        /// The tensor.
        name: String,
        /// The dtype.
        found: String,
    },
    /// The size of a tensor exceeds 64 bits or is not a whole number of bytes.
    #[error(
        "header.{name}.shape: expected a whole number of bytes that fits 64 bits, found {dtype}{shape:?}"
    )]
    Shape {
        /// The tensor.
        name: String,
        /// Its dtype.
        dtype: String,
        /// Its sizes.
        shape: Vec<u64>,
    },
    /// The data range of a tensor differs from the size of the tensor.
    #[error(
        "header.{name}.data_offsets: expected {expected} bytes for {dtype}{shape:?}, found {begin} to {end}"
    )]
    Size {
        /// The tensor.
        name: String,
        /// Its dtype.
        dtype: String,
        /// Its sizes.
        shape: Vec<u64>,
        /// Size of its elements in bytes.
        expected: u64,
        /// Start of its data, relative to the end of the header.
        begin: u64,
        /// End of its data.
        end: u64,
    },
    /// The data of a tensor overlaps other data or leaves a gap.
    #[error(
        "header.{name}.data_offsets at offset {offset}: expected the data to begin at {expected}, \
         where that of the preceding tensor ends, found {found}"
    )]
    Order {
        /// The tensor.
        name: String,
        /// File offset of its data.
        offset: u64,
        /// End of the preceding tensor's data, relative to the end of the header.
        expected: u64,
        /// Start of this tensor's data.
        found: u64,
    },
    /// The file is shorter or longer than its tensors.
    #[error("the tensors need {needs} bytes after the header, but the file has {has}")]
    DataLength {
        /// End of the last tensor.
        needs: u64,
        /// Number of bytes after the header.
        has: u64,
        /// File offset at which the data should end.
        offset: u64,
    },
}

impl FormatError for Error {
    fn offset(&self) -> Option<u64> {
        match self {
            Self::TooShort { .. } | Self::HeaderLength { .. } => Some(0),
            Self::NoObject { .. } => Some(8),
            Self::Json { offset, .. } => *offset,
            Self::Order { offset, .. } | Self::DataLength { offset, .. } => Some(*offset),
            Self::Read(_) | Self::DType { .. } | Self::Shape { .. } | Self::Size { .. } => None,
        }
    }
}
