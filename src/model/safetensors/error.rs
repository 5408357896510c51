//! What can be broken in a safetensors file, one variant for each invariant.

use std::io;

use crate::model::Breach;

/// What is broken in a safetensors file. Tensors are named as the header names them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes cannot be had.
    #[error("header: {0}")]
    Read(#[from] io::Error),
    /// Too short for the header's length.
    #[error("header length at offset 0: needs 8 bytes, but the file has {len}")]
    TooShort {
        /// Bytes of the file.
        len: u64,
    },
    /// A header that no reader takes, or that leads out of the file.
    #[error("header length at offset 0: expected at most {most} bytes, found {found}")]
    HeaderLength {
        /// The length.
        found: u64,
        /// The most it may be, by the format and by the file.
        most: u64,
    },
    /// The header does not begin with an object.
    #[error("header at offset 8: expected `{{`, found {found}")]
    NoObject {
        /// What is there.
        found: String,
    },
    /// The header is no JSON, or not what the format has there.
    #[error("header, line {line}, column {column}: {reason}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
        /// What is wrong.
        reason: String,
        /// File offset, where the header has one line as all writers make it.
        offset: Option<u64>,
    },
    /// A dtype that the format does not have.
    #[error("header.{name}.dtype: expected a dtype of the format, found {found}")]
    DType {
        /// The tensor.
        name: String,
        /// The dtype.
        found: String,
    },
    /// A tensor whose size does not fit 64 bits or that has parts of a byte.
    #[error("header.{name}.shape: {dtype}{shape:?} is no whole number of bytes that fits 64 bits")]
    Shape {
        /// The tensor.
        name: String,
        /// Its dtype.
        dtype: String,
        /// Its sizes.
        shape: Vec<u64>,
    },
    /// A place that is not as large as the tensor.
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
        /// Bytes of its elements.
        expected: u64,
        /// Where its data begins behind the header.
        begin: u64,
        /// Where it ends.
        end: u64,
    },
    /// Data that overlaps other data, or leaves a gap.
    #[error(
        "header.{name}.data_offsets at offset {offset}: expected the data to begin at {expected}, \
         where that of the tensor before it ends, found {found}"
    )]
    Order {
        /// The tensor.
        name: String,
        /// File offset of its data.
        offset: u64,
        /// Where the one before it ends, behind the header.
        expected: u64,
        /// Where it begins.
        found: u64,
    },
    /// The file ends before the data, or goes on behind it.
    #[error("the tensors need {needs} bytes behind the header, but the file has {has}")]
    DataLength {
        /// Where the last tensor ends.
        needs: u64,
        /// Bytes behind the header.
        has: u64,
        /// File offset where the data should end.
        offset: u64,
    },
}

impl Breach for Error {
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
