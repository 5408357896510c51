//! Operators of ours for ONNX: what the library has no code for, or code that is wrong.
//!
//! They are registered in its place, so the library's reader builds them like its own.

mod recurrence;

use tract_onnx::Onnx;

/// The library's reader of ONNX, with the operators of ours.
pub(super) fn reader() -> Onnx {
    let mut reader = tract_onnx::onnx();
    for name in ["RNN", "GRU", "LSTM", "DynamicQuantizeLSTM"] {
        reader.op_register.insert(name, recurrence::build);
    }
    reader
}
