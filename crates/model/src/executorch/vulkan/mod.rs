//! Reader for the payloads of Vulkan delegates: a `VkGraph` behind a header `VH00`.
//!
//! A delegate payload is the part of an ExecuTorch program that a backend runs; Vulkan runs its
//! graph on the GPU.
//!
//! - `payload` locates the parts of a payload.
//! - `graph` reads a complete graph for an engine.
//! - `relations` extracts evidence of dynamic dimensions.
//! - `content` summarises a payload.
//! - `schema` has the field numbers.

mod content;
mod graph;
mod payload;
mod relations;
mod schema;

pub(super) use content::content;
pub use graph::{VulkanCall, VulkanGraph, VulkanTensor, VulkanValue};
pub(super) use payload::find;
pub(super) use relations::{count_ports, relate};
