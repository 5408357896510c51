//! The payloads of XNNPACK's delegate.
//!
//! `payload` finds the parts of one, `kinds` lists the kinds of node, each with its table (`fields`), which is
//! read into what the node computes (`node`). `graph` is a graph whole, for an executor; `relations` is what one
//! tells of dynamic dimensions, `content` what one holds; `load` checks what a device checks, by the rest of the `schema`.

mod content;
mod fields;
mod graph;
mod kinds;
mod load;
mod node;
mod payload;
mod relations;
mod schema;

pub(super) use content::content;
pub use graph::{Datatype, Graph, Quantization, Scales, Value};
pub(super) use load::check;
pub use node::{BinaryKind, Conv, ConvKind, Node, NodeKind, Pool, UnaryKind};
pub(super) use relations::{find, relate};
