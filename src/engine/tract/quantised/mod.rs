//! Quantised ONNX graphs on bytes.
//!
//! A graph says of an operator on bytes that they become numbers, that the operator computes with these, and
//! that the result becomes bytes again (`DequantizeLinear`, `Conv`, `QuantizeLinear`), or in one word
//! (`QLinearConv`). Computed as written, all three are done in float32. Here such a group becomes one node
//! with an operator on [`crate::kernels::bytes`]:
//!
//! 1. [`mod@unfold`]: operators of ONNX Runtime that have no other form are written as such groups.
//! 2. [`mod@fuse`]: groups become nodes ([`node`] has their form). What no kernel takes (weights that no constant
//!    holds, grids of channels, other operators) stays as it was.
//! 3. [`register`]: the library's reader builds operators of these nodes.
//!
//! Where a run decides how numbers become bytes (`DynamicQuantizeLinear`, `MatMulInteger`), sums stay integers
//! ([`dynamic`]).
//!
//! A convolution, a product or a mean sums whole numbers, so it is more exact than its float32; all else is what float32
//! gives, to the last bit. A bias in float32 is rounded to a step of the sums, which are at least 64 to a step
//! of the output.

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

/// Teaches the library's reader the nodes of ours.
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
