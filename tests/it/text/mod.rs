//! Tests of text generation, tokenizers, templates and embeddings.

mod decoder;
mod embedding;
mod lanes;
mod template;
