//! Reader for GGUF files, the model format of llama.cpp and other programs based on ggml.
//!
//! A file consists of key-value metadata, tensor descriptions, padding and the tensors' data:
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. The format defines no methods or
//! signatures; the program that loads the file supplies the graph, selected by the key
//! `general.architecture`. Invariant: the budget of [`Pages`] bounds the work, an allowance bounds
//! the memory. Tensor data is never read.

mod element;
mod header;
mod reader;

use std::path::Path;

pub use element::{GgmlType, ggml_type};

use super::format::has_extension;
use super::{ModelError, ModelFormat, ModelInfo};
use pkgtool_base::source::{Pages, ReadAt};

/// Magic number at the start of the file.
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
