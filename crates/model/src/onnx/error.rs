//! Errors of the ONNX reader, one variant per invariant.
//!
//! Every variant names the place as a path of fields (`ModelProto.graph.input[2].type`).

use super::fault::Fault;
use crate::FormatError;
use pkgtool_base::source::pages::PageError;

/// A violation of the ONNX format.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes cannot be read, or the file needs more reads than any real model.
    #[error("{place}: {error}")]
    Read {
        /// The message being read.
        place: String,
        /// The cause.
        error: PageError,
    },
    /// A varint has more than 64 bits.
    #[error("{place} at offset {offset}: expected a varint, found one longer than 64 bits")]
    VarintTooLong {
        /// The field, or the message where a tag was expected.
        place: String,
        /// File offset of the varint.
        offset: u64,
    },
    /// A varint or fixed-size number is cut off by the end of its message.
    #[error(
        "{place} at offset {offset}: expected {expected}, found the end of the message after \
         {left} bytes"
    )]
    NumberCut {
        /// The field, or the message where a tag was expected.
        place: String,
        /// File offset of the number.
        offset: u64,
        /// The expected encoding of the number.
        expected: &'static str,
        /// Number of bytes between the offset and the end of the message.
        left: u64,
    },
    /// A length exceeds the enclosing message.
    #[error(
        "{place} at offset {offset}: needs {length} bytes, but the enclosing message has {left} \
         left"
    )]
    LengthPastEnd {
        /// The field.
        place: String,
        /// File offset of the field's content.
        offset: u64,
        /// Its length in bytes.
        length: u64,
        /// Number of bytes between the offset and the end of the enclosing message.
        left: u64,
    },
    /// A tag has field number 0 or one above the maximum.
    #[error(
        "{place} at offset {offset}: expected a field number from 1 to 536870911, found {found}"
    )]
    FieldNumber {
        /// The message.
        place: String,
        /// File offset of the tag.
        offset: u64,
        /// The field number.
        found: u64,
    },
    /// A tag has an undefined wire type, or that of a group, which ONNX never uses.
    #[error("{place} at offset {offset}: unsupported wire type {found}")]
    UnknownWireType {
        /// The field.
        place: String,
        /// File offset of the tag.
        offset: u64,
        /// The wire type: 3 and 4 are groups, 6 and 7 are undefined.
        found: u8,
    },
    /// A field is encoded as another type than in the schema.
    #[error("{place} at offset {offset}: expected {expected}, found {found}")]
    WrongWireType {
        /// The field.
        place: String,
        /// File offset of the tag.
        offset: u64,
        /// The type in the schema.
        expected: &'static str,
        /// The type in the file.
        found: &'static str,
    },
    /// A singular embedded message occurs twice. Protobuf would merge the two; writers of models
    /// never do this, and readers disagree.
    #[error("{place} at offset {offset}: expected the field once, found it a second time")]
    Repeated {
        /// The field.
        place: String,
        /// File offset of the second tag.
        offset: u64,
    },
    /// A name is longer than any real one.
    #[error("{place} at offset {offset}: expected at most {limit} bytes of text, found {length}")]
    TextTooLong {
        /// The field.
        place: String,
        /// File offset of the text.
        offset: u64,
        /// Its length in bytes.
        length: u64,
        /// Maximum length of a name in bytes.
        limit: u64,
    },
    /// A name is not UTF-8.
    #[error("{place} at offset {offset}: expected UTF-8 text, found byte {found:#04x}")]
    NotUtf8 {
        /// The field.
        place: String,
        /// File offset of the first invalid byte.
        offset: u64,
        /// That byte.
        found: u8,
    },
    /// A field that every model has is missing.
    #[error("{place} is missing")]
    Missing {
        /// The field.
        place: String,
        /// File offset of the message that lacks it; `None` for the whole file.
        offset: Option<u64>,
    },
    /// Subgraphs are nested deeper than in any real model.
    #[error("{place} at offset {offset}: more than {limit} nested graphs")]
    TooDeep {
        /// The field.
        place: String,
        /// File offset of the graph that exceeds the depth.
        offset: u64,
        /// Maximum depth.
        limit: u32,
    },
    /// Names, values, dimensions and properties exceed the memory limit.
    #[error(
        "{place} at offset {offset}: names, shapes and properties take more than {limit} bytes"
    )]
    TooMuch {
        /// The field that exceeded the limit.
        place: String,
        /// File offset of the field.
        offset: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Tensors are spread over more external files than in any real model.
    #[error("{place} at offset {offset}: tensors in more than {limit} external files")]
    TooManyLocations {
        /// The tensor.
        place: String,
        /// File offset of the tensor.
        offset: u64,
        /// Maximum number of files.
        limit: usize,
    },
    /// The `offset` or `length` of an external tensor is not a number.
    #[error("{place} at offset {offset}: expected a number of bytes as {key:?}, found {found:?}")]
    NotANumber {
        /// The entry.
        place: String,
        /// File offset of the entry.
        offset: u64,
        /// `offset` or `length`.
        key: &'static str,
        /// The value, truncated if it is long.
        found: String,
    },
    /// The dimensions of an external tensor, or its offset plus length, overflow.
    #[error("{place} at offset {offset}: the end of its external data does not fit 64 bits")]
    DataTooLarge {
        /// The tensor.
        place: String,
        /// File offset of the tensor.
        offset: u64,
    },
    /// An output of the graph is undefined: neither an input, an initializer nor an output of a
    /// node.
    #[error("{place} at offset {offset}: nothing in the graph defines the output {name:?}")]
    OutputNotMade {
        /// The output.
        place: String,
        /// File offset of the output.
        offset: u64,
        /// Its name, truncated if it is long.
        name: String,
    },
    /// ONNX Runtime rejects the model when it loads it.
    #[error("{place} at offset {offset}: {fault}")]
    RejectedByRuntime {
        /// The node, tensor, graph or import.
        place: String,
        /// File offset of the item.
        offset: u64,
        /// The violated rule.
        fault: Fault,
    },
}

impl FormatError for Error {
    fn offset(&self) -> Option<u64> {
        match self {
            Self::Read { error, .. } => Some(error.offset()),
            Self::Missing { offset, .. } => *offset,
            Self::VarintTooLong { offset, .. }
            | Self::NumberCut { offset, .. }
            | Self::LengthPastEnd { offset, .. }
            | Self::FieldNumber { offset, .. }
            | Self::UnknownWireType { offset, .. }
            | Self::WrongWireType { offset, .. }
            | Self::Repeated { offset, .. }
            | Self::TextTooLong { offset, .. }
            | Self::NotUtf8 { offset, .. }
            | Self::TooDeep { offset, .. }
            | Self::TooMuch { offset, .. }
            | Self::TooManyLocations { offset, .. }
            | Self::NotANumber { offset, .. }
            | Self::DataTooLarge { offset, .. }
            | Self::OutputNotMade { offset, .. }
            | Self::RejectedByRuntime { offset, .. } => Some(*offset),
        }
    }
}
