//! What can be broken in an ONNX model, one variant for each invariant.
//!
//! Every variant names the place as a path of fields (`ModelProto.graph.input[2].type`).

use super::fault::Fault;
use crate::model::Breach;
use crate::source::pages::PageError;

/// What is broken in an ONNX model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes cannot be had, or the file needs more reads than any real model.
    #[error("{place}: {error}")]
    Read {
        /// The message being read.
        place: String,
        /// Why not.
        error: PageError,
    },
    /// A varint of more than 64 bits.
    #[error("{place} at offset {offset}: expected a varint, found one longer than 64 bits")]
    VarintTooLong {
        /// The field, or the message where a tag was expected.
        place: String,
        /// Where the varint begins.
        offset: u64,
    },
    /// A varint or fixed-size number that the end of its message cuts off.
    #[error(
        "{place} at offset {offset}: expected {expected}, found the end of the message after \
         {left} bytes"
    )]
    NumberCut {
        /// The field, or the message where a tag was expected.
        place: String,
        /// Where the number begins.
        offset: u64,
        /// Which kind of number.
        expected: &'static str,
        /// Bytes between there and the end of the message.
        left: u64,
    },
    /// A length that leads out of the message around it.
    #[error(
        "{place} at offset {offset}: needs {length} bytes, but the message around it has {left} \
         left"
    )]
    LengthPastEnd {
        /// The field.
        place: String,
        /// Where its content begins.
        offset: u64,
        /// Its length in bytes.
        length: u64,
        /// Bytes between there and the end of the message around it.
        left: u64,
    },
    /// A tag whose field number is 0 or above the largest.
    #[error(
        "{place} at offset {offset}: expected a field number from 1 to 536870911, found {found}"
    )]
    FieldNumber {
        /// The message.
        place: String,
        /// Where the tag begins.
        offset: u64,
        /// The number.
        found: u64,
    },
    /// A tag with a wire type that protobuf does not have, or a group, which ONNX never uses.
    #[error("{place} at offset {offset}: no ONNX model has a field of wire type {found}")]
    UnknownWireType {
        /// The field.
        place: String,
        /// Where the tag begins.
        offset: u64,
        /// The wire type: 3 and 4 are groups, 6 and 7 nothing.
        found: u8,
    },
    /// A field written as another kind of value than the schema gives it.
    #[error("{place} at offset {offset}: expected {expected}, found {found}")]
    WrongWireType {
        /// The field.
        place: String,
        /// Where the tag begins.
        offset: u64,
        /// The kind of the schema.
        expected: &'static str,
        /// The kind in the file.
        found: &'static str,
    },
    /// An embedded message that may stand once stands twice. Protobuf would merge the two; no
    /// writer of models does this, and readers disagree.
    #[error("{place} at offset {offset}: expected once, found a second time")]
    Repeated {
        /// The field.
        place: String,
        /// Where the second tag begins.
        offset: u64,
    },
    /// A name that is longer than any real one.
    #[error("{place} at offset {offset}: expected at most {limit} bytes of text, found {length}")]
    TextTooLong {
        /// The field.
        place: String,
        /// Where the text begins.
        offset: u64,
        /// Its length in bytes.
        length: u64,
        /// The most a name may have.
        limit: u64,
    },
    /// A name that is not UTF-8.
    #[error("{place} at offset {offset}: expected UTF-8 text, found byte {found:#04x}")]
    NotUtf8 {
        /// The field.
        place: String,
        /// Where the first wrong byte stands.
        offset: u64,
        /// That byte.
        found: u8,
    },
    /// A field without which there is no model.
    #[error("{place} is missing")]
    Missing {
        /// The field.
        place: String,
        /// Where the message without it begins; none for the whole file.
        offset: Option<u64>,
    },
    /// Subgraphs within subgraphs, deeper than any real model has them.
    #[error("{place} at offset {offset}: more than {limit} graphs within each other")]
    TooDeep {
        /// The field.
        place: String,
        /// Where the graph that is too deep begins.
        offset: u64,
        /// How deep they may be.
        limit: u32,
    },
    /// Names, values, dimensions and properties that would take too much memory together.
    #[error(
        "{place} at offset {offset}: names, shapes and properties take more than {limit} bytes"
    )]
    TooMuch {
        /// The field that would have been one too many.
        place: String,
        /// Where it begins.
        offset: u64,
        /// The most they may take together.
        limit: u64,
    },
    /// Tensors in more external files than any real model has.
    #[error("{place} at offset {offset}: tensors in more than {limit} external files")]
    TooManyLocations {
        /// The tensor.
        place: String,
        /// Where it begins.
        offset: u64,
        /// How many files there may be.
        limit: usize,
    },
    /// An external tensor whose `offset` or `length` is not a number.
    #[error("{place} at offset {offset}: expected a number of bytes as {key:?}, found {found:?}")]
    NotANumber {
        /// The entry.
        place: String,
        /// Where it begins.
        offset: u64,
        /// `offset` or `length`.
        key: &'static str,
        /// The value, cut if it is long.
        found: String,
    },
    /// An external tensor whose dimensions, or whose offset and length together, overflow.
    #[error("{place} at offset {offset}: the end of its external data does not fit 64 bits")]
    DataTooLarge {
        /// The tensor.
        place: String,
        /// Where it begins.
        offset: u64,
    },
    /// An output of the graph that is neither an input, an initializer nor made by a node.
    #[error("{place} at offset {offset}: nothing in the graph makes the output {name:?}")]
    OutputNotMade {
        /// The output.
        place: String,
        /// Where it begins.
        offset: u64,
        /// Its name, cut if it is long.
        name: String,
    },
    /// Something that ONNX Runtime refuses when it loads the model.
    #[error("{place} at offset {offset}: {fault}")]
    Unsound {
        /// The node, tensor, graph or import.
        place: String,
        /// Where it begins.
        offset: u64,
        /// What is wrong with it.
        fault: Fault,
    },
}

impl Breach for Error {
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
            | Self::Unsound { offset, .. } => Some(*offset),
        }
    }
}
