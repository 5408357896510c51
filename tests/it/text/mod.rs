//! Text: tokenizers, embeddings.

mod embedding;
mod tokenizer;
