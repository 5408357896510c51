//! Text with a model.

mod answer;
mod chat;
mod constraint;
mod embedding;
mod generation;
mod sampling;
mod template;
mod tokenizer;
