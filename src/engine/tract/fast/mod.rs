//! Operators on kernels of ours ([`crate::kernels`]), in the place of the library's where it is slow.
//!
//! A graph is looked through before the library optimises it, while a convolution is still one node. What
//! follows a convolution or product alone (a scale and a shift of each channel, a sum with another tensor, an
//! activation) becomes part of it. Operators here take and give images `[n, h, w, c]`; where a graph has channels first,
//! they are moved around each one, and the library cancels the moves between two. Weights that no constant
//! holds, other dtypes and windows of three dimensions stay with the library.

mod attention;
mod chain;
mod convolution;
mod gate;
mod product;
mod region;
mod sum;
#[cfg(test)]
mod tests;
mod turn;

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::cnn::Conv;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::nn::Reduce;

use crate::kernels::Cpu;
use crate::kernels::float::InPlace;

/// The graph, optimised by the library, with operators of ours in the place of its own. `functions` computes those of
/// single numbers, by their names; `hold` keeps in its place what the library would move wrongly.
pub(super) fn optimized(
    model: TypedModel,
    functions: fn(&str) -> Option<InPlace>,
    hold: fn(&mut TypedModel) -> TractResult<()>,
) -> TractResult<TypedModel> {
    let cpu = Cpu::chosen();
    let mut model = rewrite(model, cpu)?;
    hold(&mut model)?;
    let mut model = model.into_decluttered()?;
    // The library has turned axes: where channels stood first, sums went along the last ones.
    replace(&mut model, cpu, &[sum::replaced, attention::replaced])?;
    region::join(&mut model, cpu, functions)?;
    model.optimize()?;
    turn::settle(&mut model);
    Ok(model)
}

/// Puts operators of ours in the place of the library's.
fn rewrite(mut model: TypedModel, cpu: Cpu) -> TractResult<TypedModel> {
    // Kernels that the graph moves before it uses them are known only then.
    let is_one = |node: &TypedNode| {
        let is_binary = node.op_is::<TypedBinOp>();
        is_binary || node.op_is::<Conv>() || node.op_is::<EinSum>() || node.op_is::<Reduce>()
    };
    let has_one = model.nodes().iter().any(is_one);
    if !has_one {
        return Ok(model);
    }
    model.prop_consts()?;
    let rules = [
        convolution::replaced,
        product::replaced,
        sum::replaced,
        gate::replaced,
    ];
    replace(&mut model, cpu, &rules)?;
    Ok(model)
}

/// What takes the place of a node, if anything does.
type Rule = fn(&TypedModel, &TypedNode, Cpu) -> TractResult<Option<TypedModelPatch>>;

/// Puts in the place of each node what the first rule for it says.
fn replace(model: &mut TypedModel, cpu: Cpu, rules: &[Rule]) -> TractResult<()> {
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
