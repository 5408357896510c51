//! Reader for the payloads of XNNPACK delegates.
//!
//! A delegate payload is the part of an ExecuTorch program that a backend runs; XNNPACK runs its
//! graph on the CPU. A payload is an `XNNGraph` (a FlatBuffer), usually behind a header `XH00`.
//!
//! - `payload` locates the parts of a payload.
//! - `kinds` lists the node kinds; `fields` reads their tables into the computations in `node`.
//! - `graph` reads a complete graph for an engine.
//! - `relations` extracts evidence of dynamic dimensions.
//! - `content` summarises a payload.
//! - `load` applies the checks of a device; `schema` has the remaining tables.

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
pub use graph::{Datatype, Quantization, Scales, XnnpackGraph, XnnpackValue};
pub(super) use load::check;
pub use node::{BinaryKind, Conv, ConvKind, NodeKind, PoolWindow, UnaryKind, XnnpackNode};
pub(super) use relations::{find, relate};
