//! Reader for safetensors files: named tensors behind a JSON header.
//!
//! A file consists of eight bytes with the header's length, the header, and the tensors' data
//! without gaps: <https://github.com/huggingface/safetensors#format>. The format defines no methods
//! or signatures. Invariant: the header is read as a stream with bounds; tensor data is never read.

mod element;
mod header;

use std::path::Path;

use super::format::has_extension;
use super::{ModelError, ModelFormat, ModelInfo};
use pkgtool_base::source::ReadAt;

/// The safetensors format.
#[derive(Debug)]
pub struct Safetensors;

impl ModelFormat for Safetensors {
    fn name(&self) -> &'static str {
        "safetensors"
    }

    /// Recognised by the extension, or by a length followed by an object with a tensor's name.
    fn is_named(&self, path: &Path) -> bool {
        has_extension(path, &["safetensors"])
    }

    fn is_marked(&self, first_bytes: &[u8]) -> bool {
        first_bytes.get(5..10) == Some(b"\0\0\0{\"")
    }

    fn inspect(&self, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        Ok(header::read(source)?)
    }
}
