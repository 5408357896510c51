//! What clients ask of a text model: chat completions and text completions, read and checked.
//!
//! Invariant: a request that was read is within its [`Bounds`], and every fault of one names the field,
//! what was expected there and what was found. Unknown fields are passed over. How to draw tokens
//! and where to stop is read by whom it concerns, from [`ChatRequest::fields`]. Knows no tokenizer and
//! no HTTP.

mod bounds;
mod completion;
mod conversation;
mod fault;
mod field;
mod format;
mod json;
mod message;
mod request;
mod shared;
mod tool;

pub use bounds::Bounds;
pub use completion::{CompletionRequest, Prompt};
pub use fault::Fault;
pub use format::ResponseFormat;
pub use json::read_json;
pub use message::{Content, Message, Role, ToolCall};
pub use request::ChatRequest;
pub use shared::Streaming;
pub use tool::{Tool, ToolChoice};
