//! Chat templates: a package's own Jinja templates, which turn a conversation into a prompt.
//!
//! A template is a program from a package, so it runs in a worker process with limits on memory and
//! time ([`Renderer`]). Invariant: the rendered text equals that of `transformers`. Whatever a
//! template does, the caller gets a text or a [`TemplateError`]. Tokenizers and requests are
//! handled elsewhere: a template sees only a [`Conversation`].

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
pub use find::{Template, TemplatePlaces, Templates};
pub use renderer::{RenderLimits, Renderer};
pub use takes::TemplateTakes;

/// The name of this kind of job.
pub const WORK: &str = "templates";
