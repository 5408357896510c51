//! ONNX operators that the tract library lacks or computes wrongly.
//!
//! They are registered in the library's reader, which builds them like its own operators.

mod bits;
mod body;
mod branch;
mod cache;
mod causal;
mod cumulative;
mod facts;
mod indices;
mod linear;
mod linear_attention;
mod one_hot;
pub(super) mod packed;
mod pad;
mod repeat;
mod resize;
mod reversed;
mod subgraph;
mod table;
mod unique;

use tract_onnx::Onnx;

use super::node_operator::BuildNode;
use super::{attention, narrow, recurrent};

/// The operators of this crate by name.
const OPERATORS: [(&str, BuildNode); 27] = [
    (attention::NAME, attention::build),
    (attention::grouped::NAME, attention::grouped::build),
    (attention::rotary::NAME, attention::rotary::build),
    ("RNN", recurrent::build),
    ("GRU", recurrent::build),
    ("LSTM", recurrent::build),
    ("DynamicQuantizeLSTM", recurrent::build),
    ("If", branch::build),
    ("Loop", repeat::build),
    ("Pad", pad::build),
    ("GatherND", indices::gather),
    ("ScatterND", indices::scatter),
    ("OneHot", one_hot::build),
    ("BitCast", bits::build),
    ("DequantizeLinear", linear::build_dequantization),
    ("LinearAttention", linear_attention::build),
    ("QuantizeLinear", linear::build_quantization),
    (narrow::ROUNDED, narrow::build_rounded),
    ("CausalConvWithState", causal::build),
    ("CumProd", cumulative::build),
    ("Resize", resize::build),
    ("ReverseSequence", reversed::build),
    ("TensorScatter", cache::build),
    ("Unique", unique::build),
    ("Upsample", resize::build),
    (packed::NAME, packed::build),
    (table::NAME, table::build),
];

/// Returns the library's ONNX reader with the operators of this crate.
pub(crate) fn reader() -> Onnx {
    let mut reader = tract_onnx::onnx();
    for (name, build) in OPERATORS {
        reader.op_register.insert(name, build);
    }
    reader
}
