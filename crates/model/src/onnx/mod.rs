//! Reader for ONNX models (`ModelProto`), based on the protobuf wire format.
//!
//! Only descriptive fields are read: names, types, shapes, operators, and locations of tensor data.
//! The data itself is skipped. Field numbers and their meaning:
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>. Invariant: the budget of [`Pages`]
//! bounds the time. The budget and an allowance for kept data bound the memory, and a depth limit
//! bounds the recursion.

mod body;
mod context;
mod external;
mod function;
mod header;
mod interface;
mod load;
mod nodes;
mod place;
mod schema;
mod signature;
mod stored;
mod tensor;
mod value;
mod wire;
pub mod write;

use std::path::Path;

pub use nodes::{Attribute, ModelItem, OnnxNode, each_item, each_node};
pub use stored::{StoredTensor, each_initializer};

use super::format::has_extension;
use super::{ModelError, ModelFormat, ModelInfo};
use crate::FormatError;
use pkgtool_base::source::{Pages, ReadAt};

/// The ONNX format.
#[derive(Debug)]
pub struct Onnx;

impl ModelFormat for Onnx {
    fn name(&self) -> &'static str {
        "onnx"
    }

    fn is_named(&self, path: &Path) -> bool {
        has_extension(path, &["onnx"])
    }

    /// Recognised by a sequence of first bytes that is almost unique to ONNX.
    fn is_marked(&self, first_bytes: &[u8]) -> bool {
        signature::matches(first_bytes)
    }

    fn inspect(&self, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        Ok(read(&Pages::new(source))?)
    }
}

/// Returns the whole value of a metadata property; [`read`] shortens long ones.
pub fn property(source: &dyn ReadAt, key: &str) -> Result<Option<String>, FormatError> {
    header::whole_property(&Pages::new(source), key)
}

/// Reads the model in `pages`, within their remaining budget.
pub fn read(pages: &Pages<'_>) -> Result<ModelInfo, FormatError> {
    header::read(pages)
}
