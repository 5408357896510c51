//! The payloads of XNNPACK's delegate.
//!
//! `graph` reads one whole, for an executor; `node` has what its nodes compute. `relations` reads of it what
//! tells of dynamic dimensions, `load` checks what a device checks; `schema` is the FlatBuffer's.

mod graph;
pub(super) mod load;
mod node;
pub(super) mod relations;
mod schema;

pub use graph::{Data, Datatype, Graph, Quantization, Scales, Value};
pub use node::{BinaryKind, Conv, ConvKind, Node, NodeKind, Pool, UnaryKind};
