//! The payloads of QNN's delegate: a wrapper of ExecuTorch's around what Qualcomm's tools made.
//!
//! `wrapper` finds what is inside, `context` reads the description in a context binary, `element` and `chip` give
//! numbers their names, `content` is what a payload tells. The compiled graphs themselves are Qualcomm's matter:
//! nothing here reads them.

mod chip;
mod content;
mod context;
mod element;
mod wrapper;

pub(super) use content::content;
pub use context::{Context, Graph, begins};
