//! Parses and checks chat completion and text completion requests.
//!
//! Invariant: a parsed request is within its [`RequestLimits`]. Every error names the field, the expected
//! value and the value found. Unknown fields are ignored. Sampling settings and stop strings stay
//! unparsed in [`ChatRequest::fields`] for their own modules. Tokenizers and HTTP are handled
//! elsewhere.

mod bounds;
mod completion;
mod conversation;
mod fault;
mod field;
mod format;
mod json;
mod message;
mod picture;
mod request;
mod shared;
mod tool;

pub use bounds::RequestLimits;
pub use completion::{CompletionRequest, Prompt};
pub use fault::FieldError;
pub use format::ResponseFormat;
pub use json::read_json;
pub use message::{Content, ContentPart, Message, Role, ToolCall};
pub use picture::{BASE64, ChatPicture, data_uri};
pub use request::ChatRequest;
pub use shared::Streaming;
pub use tool::{Tool, ToolChoice};
