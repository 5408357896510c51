//! The payloads of Core ML's delegate: a package of Core ML's in a file system of its own.
//!
//! `files` reads that file system, `proto` walks protobuf messages, `program` reads the ML Program in one,
//! `blob` finds weights in its weight file, `package` puts them together. Compiled packages are refused by name.

mod blob;
mod files;
mod package;
mod program;
mod proto;

pub use blob::Blob;
pub use package::Package;
pub(in crate::model) use program::functions;
pub use program::{Argument, Block, Content, Function, Kind, Operation, Type, Value};
pub(in crate::model) use proto::{Field, Message, varint};
