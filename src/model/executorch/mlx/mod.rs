//! The payloads of MLX's delegate: `MLXGraph` behind a header `MLX0`.
//!
//! `kinds` lists the kinds of instructions with their fields, `graph` is a graph whole, for an executor;
//! `relations` is what one tells of dynamic dimensions, `content` what one holds.

mod content;
mod graph;
mod kinds;
mod relations;

pub(super) use content::content;
pub(super) use graph::find;
pub use graph::{Field, Graph, Instruction, Number, Slot, Tensor};
pub(super) use relations::{count_ports, relate};
