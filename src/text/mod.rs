//! Text with a model: from the characters of a caller to the ids of a model, and back to what a reader is
//! given.
//!
//! Invariant: what a client or a package says is read in bounds and ends in an answer or an error that
//! names it, whatever it says. Knows no service, no HTTP and no terminal.

pub mod answer;
pub mod chat;
pub mod constraint;
pub mod decoder;
pub mod embedding;
pub mod ends;
pub mod generation;
pub mod model;
pub mod parsing;
pub mod sampling;
pub mod stop;
pub mod template;
pub mod tokenizer;
mod value;
