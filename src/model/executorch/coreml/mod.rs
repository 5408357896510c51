//! The payloads of Core ML's delegate: a package of Core ML's in a file system of its own.
//!
//! `files` reads that file system, `proto` walks protobuf messages, `program` reads the ML Program in one,
//! `blob` finds weights in its weight file, `package` puts them together. Compiled packages are refused by name.
//! What only describes one is walked in the file (`walk`, `located`): `content` is what it holds, with how weights
//! are `stored`; `relations` is what it and its `description` tell of dynamic dimensions.

mod blob;
mod content;
mod description;
mod files;
mod located;
mod package;
mod program;
mod proto;
mod relations;
mod stored;
mod walk;

pub use blob::Blob;
pub(super) use content::content;
pub use package::Package;
pub(in crate::model) use program::functions;
pub use program::{Argument, Block, Content, Function, Kind, Operation, Type, Value};
pub(in crate::model) use proto::{Field, Message};
pub(super) use relations::{count_ports, relate};
pub(in crate::model) use walk::Walk;
