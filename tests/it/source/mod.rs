//! Text and its positions.

mod json;
mod lines;
pub(crate) mod mutate;
