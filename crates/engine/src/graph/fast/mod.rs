//! Replaces slow operators of the tract library by those of [`pkgtool_kernels`].
//!
//! Most rules match a graph before the library optimises it, while a convolution is still one node.
//! Operators after a convolution or product are fused into it if nothing else reads their inputs: a
//! scale and a shift per channel, a sum with another tensor, an activation. The operators here use
//! images `[n, h, w, c]`. In graphs with the channels first, each gets transpositions around it,
//! and the library cancels those between two. Computed weights, other dtypes and windows of three
//! dimensions stay with the library.

mod attention;
mod chain;
mod channels_last;
mod convolution;
mod gate;
mod pool;
mod product;
mod region;
mod sum;
#[cfg(test)]
mod tests;
mod turn;

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::cnn::deconv::Deconv;
use tract_onnx::tract_core::ops::cnn::{Conv, MaxPool};
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::nn::Reduce;

use pkgtool_kernels::Cpu;
use pkgtool_kernels::float::InPlace;

/// Returns the graph, optimised by the library and with the kernels of this crate. `functions`
/// returns elementwise functions by name. `hold` pins operators that the library would move
/// wrongly.
pub(crate) fn optimized(
    model: TypedModel,
    functions: fn(&str) -> Option<InPlace>,
    hold: fn(&mut TypedModel) -> TractResult<()>,
) -> TractResult<TypedModel> {
    let cpu = Cpu::chosen();
    let mut model = rewrite(model, cpu)?;
    hold(&mut model)?;
    let mut model = model.into_decluttered()?;
    // The library has transposed axes by now: if channels were first, sums went along the last
    // axes.
    replace(&mut model, cpu, &[sum::replaced, attention::replaced])?;
    region::join(&mut model, cpu, functions)?;
    model.optimize()?;
    turn::settle(&mut model);
    Ok(model)
}

/// Replaces operators of the library by those of this module.
fn rewrite(mut model: TypedModel, cpu: Cpu) -> TractResult<TypedModel> {
    // Kernels that the graph transposes before use are known only now.
    let is_one = |node: &TypedNode| {
        let is_binary = node.op_is::<TypedBinOp>();
        let has_windows = node.op_is::<Conv>() || node.op_is::<Deconv>() || node.op_is::<MaxPool>();
        is_binary || has_windows || node.op_is::<EinSum>() || node.op_is::<Reduce>()
    };
    let has_one = model.nodes().iter().any(is_one);
    if !has_one {
        return Ok(model);
    }
    model.prop_consts()?;
    let rules = [
        convolution::replaced,
        pool::replaced,
        product::replaced,
        sum::replaced,
        gate::replaced,
    ];
    replace(&mut model, cpu, &rules)?;
    Ok(model)
}

/// Returns the replacement of a node, if there is one.
type FastRule = fn(&TypedModel, &TypedNode, Cpu) -> TractResult<Option<TypedModelPatch>>;

/// Replaces each node by the result of the first matching rule.
fn replace(model: &mut TypedModel, cpu: Cpu, rules: &[FastRule]) -> TractResult<()> {
    let mut replaced = false;
    for node in model.eval_order()? {
        for rule in rules {
            if let Some(patch) = rule(model, model.node(node), cpu)? {
                patch.apply(model)?;
                replaced = true;
                break;
            }
        }
    }
    if replaced {
        model.compact()?;
    }
    Ok(())
}
