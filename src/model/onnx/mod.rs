//! ONNX models (`ModelProto`), read by walking the protobuf wire format.

use std::path::Path;

use super::{ModelError, ModelFormat, ModelInfo};
use crate::source::ReadAt;

/// The ONNX format.
#[derive(Debug)]
pub struct Onnx;

/// What is broken in an ONNX model.
#[derive(Debug, thiserror::Error)]
pub enum Error {}

impl Error {
    /// The file offset of what is broken, where there is one.
    pub fn offset(&self) -> Option<u64> {
        match *self {}
    }
}

impl ModelFormat for Onnx {
    fn name(&self) -> &'static str {
        "onnx"
    }

    fn matches(&self, _path: &Path, _first_bytes: &[u8]) -> bool {
        false
    }

    fn inspect(&self, _source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        Ok(ModelInfo::default())
    }
}
