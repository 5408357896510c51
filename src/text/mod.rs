//! Text with a model: from tokens that are drawn to what a reader is given.
//!
//! Invariant: what a client or a package says ends in an answer or an error, whatever it says. Knows no
//! service, no HTTP and no terminal.

pub mod answer;
pub mod constraint;
pub mod decoder;
pub mod ends;
pub mod generation;
pub mod sampling;
pub mod stop;
