//! Reader for the payloads of Core ML delegates: a Core ML package in an in-memory file system.
//!
//! | module | role |
//! |---|---|
//! | `files` | reads the file system |
//! | `proto` | parses protobuf messages in memory |
//! | `program` | reads an ML Program |
//! | `blob` | reads records of the weight file |
//! | `package` | reads a complete package for an engine |
//! | `walk`, `located` | walk a package in the file without loading it |
//! | `content`, `stored` | summarise a payload and the storage of its weights |
//! | `relations`, `description` | extract evidence of dynamic dimensions |
//!
//! Compiled packages are rejected with a specific error.

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
pub use package::PackageFunction;
pub(crate) use program::read_functions;
pub use program::{Argument, Block, Function, MilType, Operation, Type, TypedValue, ValueContent};
pub(crate) use proto::{ProtoField, ProtoMessage};
pub(super) use relations::{count_ports, relate};
pub(crate) use walk::Walk;
