//! Runs quantised ONNX graphs on bytes instead of float32.
//!
//! A quantised operator is written as a group: the bytes are dequantised, the operator computes,
//! and the result is quantised again (`DequantizeLinear`, `Conv`, `QuantizeLinear`). Some operators
//! combine this (`QLinearConv`). Computed as written, all three parts run in float32. This module
//! turns such a group into one node with an operator on [`pkgtool_kernels::bytes`]:
//!
//! 1. [`mod@unfold`]: writes operators of ONNX Runtime without another form as such groups.
//! 2. [`mod@fuse`]: turns groups into nodes; [`node`] defines their form. Groups without a kernel
//!    (computed weights, grids
//!    per channel, other operators) stay.
//! 3. [`register`]: adds builders for these nodes to the library's reader.
//!
//! If the run determines the quantisation (`DynamicQuantizeLinear`, `MatMulInteger`), sums stay
//! integers ([`dynamic`]).
//!
//! A *grid* is the quantisation of a tensor: its scale, zero point and signedness. Convolutions,
//! products and means sum integers, which is more exact than float32. Everything else equals the
//! float32 result to the last bit. A float32 bias is rounded to a step of the sums; a step of the
//! output has at least 64 of them.

mod axes;
mod bounds;
mod constants;
mod convolution;
mod dynamic;
mod elements;
mod function;
mod fuse;
mod graph;
mod groups;
mod node;
mod pool;
mod product;
mod table;
#[cfg(test)]
mod tests;
mod unfold;
mod windows;

use tract_onnx::Onnx;

use super::node_operator::{BuildNode, operator};
use dynamic::DynamicQuantization;
pub(crate) use fuse::fuse;
pub(crate) use unfold::unfold;

/// The operators of this module by name.
const OPERATORS: [(&str, BuildNode); 11] = [
    (node::CONVOLUTION, convolution::build),
    (node::PRODUCT, product::build),
    (node::SUMS, dynamic::build_product),
    (QUANTIZATION, |_, _| {
        operator(QUANTIZATION, 1, DynamicQuantization)
    }),
    (node::ELEMENTS, elements::build),
    (node::ROUNDED, elements::build_rounded),
    (node::PAIR, elements::build_pair),
    (node::LARGEST, pool::build_largest),
    (node::MEAN, pool::build_mean),
    (node::AVERAGE, pool::build_average),
    (node::TABLE, table::build),
];

/// ONNX's operator that quantises numbers between their extremes.
const QUANTIZATION: &str = "DynamicQuantizeLinear";

/// Registers builders for the nodes of this module in the library's reader.
pub(crate) fn register(reader: &mut Onnx) {
    for (name, build) in OPERATORS {
        reader.op_register.insert(name, build);
    }
}
