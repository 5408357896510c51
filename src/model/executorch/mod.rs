//! ExecuTorch programs (`.pte`) and bundled programs (`.bpte`), read from the FlatBuffer alone.

use std::path::Path;

use super::{ModelError, ModelFormat, ModelInfo};
use crate::source::ReadAt;

/// The ExecuTorch program format.
#[derive(Debug)]
pub struct ExecuTorch;

/// What is broken in an ExecuTorch program.
#[derive(Debug, thiserror::Error)]
pub enum Error {}

impl Error {
    /// The file offset of what is broken, where there is one.
    pub fn offset(&self) -> Option<u64> {
        match *self {}
    }
}

impl ModelFormat for ExecuTorch {
    fn name(&self) -> &'static str {
        "executorch"
    }

    fn matches(&self, _path: &Path, _first_bytes: &[u8]) -> bool {
        false
    }

    fn inspect(&self, _source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        Ok(ModelInfo::default())
    }
}
