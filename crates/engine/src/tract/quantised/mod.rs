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
use tract_onnx::tract_hir::internal::expand;

use dynamic::Quantization;
pub(super) use fuse::fuse;
pub(super) use unfold::unfold;

/// Registers builders for the nodes of this module in the library's reader.
pub(super) fn register(reader: &mut Onnx) {
    let operators = &mut reader.op_register;
    operators.insert(node::CONVOLUTION, convolution::build);
    operators.insert(node::PRODUCT, product::build);
    operators.insert(node::SUMS, dynamic::build_product);
    operators.insert("DynamicQuantizeLinear", |_, _| {
        Ok((expand(Quantization), vec![]))
    });
    operators.insert(node::ELEMENTS, elements::build);
    operators.insert(node::ROUNDED, elements::build_rounded);
    operators.insert(node::PAIR, elements::build_pair);
    operators.insert(node::LARGEST, pool::build_largest);
    operators.insert(node::MEAN, pool::build_mean);
    operators.insert(node::AVERAGE, pool::build_average);
    operators.insert(node::TABLE, table::build);
}
