//! Readers of model formats.

mod onnx;
