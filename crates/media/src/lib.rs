//! Pictures, sounds and texts to tensors, and tensors to answers.
//!
//! A recipe ([`recipe::Recipe`]) says which models it fits, how a picture, a sound or a text becomes the model's inputs,
//! and how the outputs become an answer ([`answer::TypedAnswer`]): labels, boxes, segments, text, speech, a vector or a
//! picture. A recipe is data (TOML): it names operators of this crate and their parameters. Invariant: pictures and
//! sounds are decoded with limits, and every operator checks the shapes that it reads. This crate knows no service and
//! no terminal.

pub mod answer;
pub mod diffusion;
pub mod draw;
mod files;
mod kind;
pub mod labels;
mod operators;
pub mod picture;
pub mod recipe;
mod schema;
pub mod sound;
pub mod speech;
pub mod trained;
pub mod voice;
pub mod worker;

pub use kind::MediaKind;
