//! Readers of model formats.

mod executorch;
mod onnx;
