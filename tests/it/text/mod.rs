//! Tests of text generation, tokenizers, templates and embeddings.

mod answer;
mod chat;
mod constraint;
mod decoder;
mod embedding;
mod generation;
mod lanes;
mod recognised;
mod sampling;
mod template;
mod tokenizer;
