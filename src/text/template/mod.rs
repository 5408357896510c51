//! Chat templates: a package's own text that turns a conversation into a prompt.
//!
//! A template is a program that came with a package, so it runs in a worker process with limits of
//! memory and time ([`Renderer`]). Invariant: what is rendered is what `transformers` renders of the same
//! conversation; whatever a template does, the caller gets a text or a [`TemplateError`]. Knows no
//! tokenizer and no request: [`Conversation`] is what a template sees.

mod child;
mod conversation;
mod environment;
mod error;
mod files;
mod find;
mod generation_tag;
mod json_text;
mod methods;
mod moment;
mod protocol;
mod renderer;
mod special_tokens;
mod takes;

pub use child::Rendering;
pub use conversation::Conversation;
pub use error::{FindError, TemplateError};
pub use find::{Places, Template, Templates};
pub use renderer::{Limits, Renderer};
pub use takes::Takes;

/// The name of this work.
pub const WORK: &str = "templates";
