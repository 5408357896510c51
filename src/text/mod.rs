//! Text with a model: conversations in, prompts out.
//!
//! Invariant: what a client or a package says ends in an answer or an error, whatever it says. Knows no
//! service, no HTTP and no terminal.

pub mod chat;
pub mod template;
