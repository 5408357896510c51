//! ONNX operators that the tract library lacks or computes wrongly.
//!
//! They are registered in the library's reader, which builds them like its own operators.

mod body;
mod branch;
mod facts;
mod indices;
mod one_hot;
mod packed;
mod pad;
mod repeat;
mod table;

use tract_onnx::Onnx;

pub(super) use indices::Built;

use super::recurrent;

/// Returns the library's ONNX reader with the operators of this crate.
pub(super) fn reader() -> Onnx {
    let mut reader = tract_onnx::onnx();
    for name in ["RNN", "GRU", "LSTM", "DynamicQuantizeLSTM"] {
        reader.op_register.insert(name, recurrent::build);
    }
    reader.op_register.insert("If", branch::build);
    reader.op_register.insert("Loop", repeat::build);
    reader.op_register.insert("Pad", pad::build);
    reader.op_register.insert("GatherND", indices::gather);
    reader.op_register.insert("ScatterND", indices::scatter);
    reader.op_register.insert("OneHot", one_hot::build);
    reader.op_register.insert(packed::NAME, packed::build);
    reader.op_register.insert(table::NAME, table::build);
    reader
}
