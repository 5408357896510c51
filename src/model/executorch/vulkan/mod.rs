//! The payloads of Vulkan's delegate: `VkGraph` behind a header `VH00`.
//!
//! `payload` finds the parts of one, `graph` is a graph whole, for an executor; `relations` is what one tells
//! of dynamic dimensions, `content` what one holds; `schema` has the numbers of fields.

mod content;
mod graph;
mod payload;
mod relations;
mod schema;

pub(super) use content::content;
pub use graph::{Call, Graph, Tensor, Value};
pub(super) use payload::find;
pub(super) use relations::{count_ports, relate};
