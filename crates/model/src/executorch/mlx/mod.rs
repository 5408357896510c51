//! Reader for the payloads of MLX delegates: an `MLXGraph` behind a header `MLX0`.
//!
//! A delegate payload is the part of an ExecuTorch program that a backend runs; MLX runs its graph
//! on Apple GPUs.
//!
//! - `kinds` lists the kinds of instructions with their fields.
//! - `graph` reads a complete graph for an engine.
//! - `relations` extracts evidence of dynamic dimensions.
//! - `content` summarises a payload.

mod content;
mod graph;
mod kinds;
mod relations;

pub(super) use content::content;
pub(super) use graph::find;
pub use graph::{InstructionField, MlxGraph, MlxInstruction, MlxSlot, MlxTensor, Number};
pub(super) use relations::{count_ports, relate};
