//! Text with a model.

mod answer;
mod constraint;
mod sampling;
