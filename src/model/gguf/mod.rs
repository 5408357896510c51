//! GGUF files: what llama.cpp and other programs on ggml load.
//!
//! Keys with values, descriptions of tensors, padding, then the tensors' data:
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. The format has no methods, so no signature; the graph
//! is code of whoever loads it, chosen by the key `general.architecture`.
//! Invariant: work is bounded by the budget of [`Pages`], memory by an allowance; data is never read.

mod element;
mod error;
mod header;
mod reader;

use std::path::Path;

pub use element::{GgmlType, ggml_type};
pub use error::Error;

use super::format::has_extension;
use super::{ModelError, ModelFormat, ModelInfo};
use crate::source::{Pages, ReadAt};

/// What a file begins with.
const MAGIC: &[u8; 4] = b"GGUF";

/// The GGUF format.
#[derive(Debug)]
pub struct Gguf;

impl ModelFormat for Gguf {
    fn name(&self) -> &'static str {
        "gguf"
    }

    fn is_named(&self, path: &Path) -> bool {
        has_extension(path, &["gguf"])
    }

    fn is_marked(&self, first_bytes: &[u8]) -> bool {
        first_bytes.starts_with(MAGIC)
    }

    fn inspect(&self, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        Ok(header::read(&Pages::new(source))?)
    }
}
