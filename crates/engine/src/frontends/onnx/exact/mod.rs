//! Correct implementations of operators that the tract library computes wrongly.
//!
//! Builders of ONNX operators replace those of the library ([`register`]). Tensors that are known while
//! a graph is built are computed with all corrections ([`folded`]).
//! [`crate::graph::corrections`] repairs graphs.
//!
//! Invariant: values that the library computes correctly cost only a check.

mod cast;
mod compress;
mod cut;
mod einsum;
mod folded;
mod gemm;
mod mean;
mod modulo;
mod numbers;
mod pointwise;
mod pool;
mod reduce;
mod scalar;
mod top;
mod wide;
mod wrapped;

pub(crate) use cast::CAST_TO_INT64;

use tract_onnx::Onnx;

use super::node_operator::{BuildNode, operator};

/// Replaces builders of the library by those of this module.
pub(crate) fn register(library: &mut Onnx) {
    register_corrections(library);
    for name in folded::CHECKED_OPERATORS {
        library.op_register.insert(name, folded::build);
    }
    for name in wide::summing_operators() {
        library.op_register.insert(name, wide::build);
    }
}

/// The corrected operators by name.
const CORRECTED_OPERATORS: [(&str, BuildNode); 24] = [
    (CAST_TO_INT64, |_, _| cast::to_dimensions()),
    ("Compress", compress::compress),
    ("CumSum", scalar::cumsum),
    ("Einsum", einsum::einsum),
    ("Gemm", gemm::gemm),
    ("GlobalLpPool", pool::global_lp_pool),
    ("MatMul", |_, _| gemm::matmul()),
    ("MatMulInteger", gemm::matmul_integer),
    ("Mean", |_, _| operator("Mean", None, mean::MeanOperator)),
    ("Mod", modulo::modulo),
    ("Pow", |_, _| operator("Pow", 2, numbers::Pow)),
    ("Range", scalar::range),
    ("ReduceL1", reduce::build),
    ("ReduceL2", reduce::build),
    ("ReduceLogSum", reduce::build),
    ("ReduceLogSumExp", reduce::build),
    ("ReduceMax", reduce::build),
    ("ReduceMean", reduce::build),
    ("ReduceMin", reduce::build),
    ("ReduceSum", reduce::build),
    ("ReduceSumSquare", reduce::build),
    ("Slice", cut::build),
    ("TopK", top::build),
    ("Trilu", scalar::trilu),
];

fn register_corrections(library: &mut Onnx) {
    let operators = &mut library.op_register;
    for (name, build) in CORRECTED_OPERATORS {
        operators.insert(name, build);
    }
    for row in &pointwise::MAPPED_FUNCTIONS {
        operators.insert(row.name, pointwise::mapped);
    }
}
