//! Readers of model formats.

mod executorch;
pub(crate) mod onnx;
