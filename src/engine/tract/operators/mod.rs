//! Operators of ours for ONNX: what the library has no code for, or code that is wrong.
//!
//! They are registered in its place, so the library's reader builds them like its own.

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
use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;

pub(super) use indices::Built;

use super::recurrent;

type Builder = fn(&ParsingContext, &NodeProto) -> Built;

/// The library's reader of ONNX, with the operators of ours.
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
    let beside: [(_, _, Builder); 2] = [
        (packed::NAME, packed::OF_THE_LIBRARY, packed::build),
        (table::NAME, table::OF_THE_LIBRARY, table::build),
    ];
    for (name, of_the_library, build) in beside {
        if let Some(usual) = reader.op_register.0.get(name).copied() {
            reader.op_register.insert(of_the_library, usual);
        }
        reader.op_register.insert(name, build);
    }
    reader
}
