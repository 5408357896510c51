//! Text generation and embedding: tokenizers, chat templates, decoders, sampling, and parsing of
//! answers.
//!
//! The modules turn a caller's text into a model's token ids, and the model's tokens back into
//! text, reasoning and tool calls. Invariant: input from clients and packages is untrusted. It is
//! read within size limits and ends in an answer or in an error that names the fault. These modules
//! do not depend on services, HTTP or a terminal.

pub mod answer;
pub mod chat;
pub mod constraint;
pub mod decoder;
pub mod embedding;
pub mod ends;
pub mod generation;
pub mod model;
pub mod sampling;
pub mod slot;
pub mod stop;
pub mod template;
pub mod tokenizer;
mod value;
