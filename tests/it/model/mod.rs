//! Readers of model formats.

pub(crate) mod coreml;
pub(crate) mod executorch;
pub(crate) mod onnx;
