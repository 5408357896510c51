//! Text with a model.

mod chat;
mod template;
