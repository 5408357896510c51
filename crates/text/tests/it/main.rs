//! Tests of text generation that need no worker process.

mod answer;
mod chat;
mod constraint;
mod generation;
mod recognised;
mod sampling;
mod tokenizer;
