//! Tests of the readers of model formats.

pub(crate) mod coreml;
pub(crate) mod counted;
pub(crate) mod executorch;
mod formats;
pub(crate) mod onnx;
mod precision;
mod qnn;
