//! Reader for the payloads of QNN delegates: an ExecuTorch wrapper around a binary of Qualcomm's
//! tools.
//!
//! A delegate payload is the part of an ExecuTorch program that a backend runs; QNN runs its graph
//! on a Qualcomm accelerator.
//!
//! - `wrapper` locates the binary.
//! - `context` parses the description in a context binary.
//! - `element` and `chip` map numbers to names.
//! - `content` summarises a payload.
//!
//! The compiled graphs have a private format and are never read.

mod chip;
mod content;
mod context;
mod element;
mod wrapper;

pub(super) use content::content;
pub use context::{QnnContext, QnnGraph, begins};
