//! Text with a model.

mod decoder;
mod recognised;
