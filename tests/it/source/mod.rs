//! Text and its positions.

mod editor;
mod json;
mod lines;
pub(crate) mod mutate;
mod strict;
