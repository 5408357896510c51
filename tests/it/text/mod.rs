//! Text with a model.

mod answer;
mod constraint;
mod generation;
mod sampling;
mod chat;
mod template;
