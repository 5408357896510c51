//! Reader for TensorFlow Lite models (`.tflite`), which are FlatBuffers.
//!
//! Each signature becomes a method with names, tensors and shapes, including dynamic dimensions.
//! Schema:
//! <https://github.com/tensorflow/tensorflow/blob/master/tensorflow/compiler/mlir/lite/schema/schema.fbs>
//! (identifier `TFL3`). Invariant: weights are never read; every index and every length is checked.

mod element;
mod graph;
mod operator;
mod schema;
mod signature;
mod subgraph;

use std::path::Path;

use super::format::has_extension;
use super::{ModelError, ModelFormat, ModelInfo};
use pkgtool_base::source::ReadAt;

/// The supported file identifier.
const IDENTIFIER: &str = "TFL3";

/// The TensorFlow Lite format.
#[derive(Debug)]
pub struct TfLite;

impl ModelFormat for TfLite {
    fn name(&self) -> &'static str {
        "tflite"
    }

    fn is_named(&self, path: &Path) -> bool {
        has_extension(path, &["tflite"])
    }

    fn is_marked(&self, first_bytes: &[u8]) -> bool {
        first_bytes.get(4..8) == Some(IDENTIFIER.as_bytes())
    }

    fn inspect(&self, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        Ok(graph::read(source)?)
    }
}
