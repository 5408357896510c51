//! Tensors repeated by `Expand`, `Tile` and `ConstantOfShape` before a product. The library lets
//! the product repeat them, which is wrong if the product sums over the repeated axis or takes rows
//! from it.

use tract_onnx::tract_core::broadcast::multi_broadcast;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::{MultiBroadcastTo, Tile};
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::einsum::EinSum;

use super::mended::unchanged;

/// Replaces each operator that repeats a tensor by one of this module.
pub(crate) fn prepare(model: &mut TypedModel) -> TractResult<()> {
    let mut replaced: Vec<(usize, Box<dyn TypedOp>)> = Vec::new();
    for node in model.nodes() {
        // Attention handles repeated heads itself, correctly.
        let mut successors = node.outputs.iter().flat_map(|output| &output.successors);
        if successors.any(|next| model.node(next.node).op.name().contains("dpa")) {
            continue;
        }
        if let Some(expand) = node.op_as::<MultiBroadcastTo>() {
            replaced.push((node.id, Box::new(Expanded(expand.clone()))));
        } else if let Some(tile) = node.op_as::<Tile>() {
            let input = model.outlet_fact(node.inputs[0])?;
            let mut axes = input.shape.iter().zip(&tile.multipliers);
            let op: Box<dyn TypedOp> = if axes.all(|(size, times)| size.is_one() || times.is_one())
            {
                let shape = node.outputs[0].fact.shape.clone();
                Box::new(Expanded(MultiBroadcastTo { shape }))
            } else {
                // The library would convert its own `Tile` to an expansion.
                unchanged(tile)
            };
            replaced.push((node.id, op));
        }
    }
    for (node, op) in replaced {
        model.nodes[node].op = op;
    }
    Ok(())
}

/// A tensor expanded to a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expanded(MultiBroadcastTo);

impl Op for Expanded {
    fn name(&self) -> StaticName {
        "Expand".into()
    }

    op_as_typed_op!();
}

impl EvalOp for Expanded {
    op_out_of_plan!();

    fn eval(&self, context: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        self.0.eval(context, inputs)
    }
}

impl TypedOp for Expanded {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        self.0.output_facts(inputs)
    }

    fn axes_mapping(
        &self,
        inputs: &[&TypedFact],
        outputs: &[&TypedFact],
    ) -> TractResult<AxesMapping> {
        self.0.axes_mapping(inputs, outputs)
    }

    fn change_axes(
        &self,
        model: &TypedModel,
        node: &TypedNode,
        io: InOut,
        change: &AxisOp,
    ) -> TractResult<Option<AxisChangeConsequence>> {
        let consequence = self.0.change_axes(model, node, io, change)?;
        Ok(consequence.map(|mut consequence| {
            if let Some(op) = consequence.substitute_op.take() {
                let ours = op.as_op().downcast_ref::<MultiBroadcastTo>();
                let ours = ours.map(|op| Box::new(Self(op.clone())) as Box<dyn TypedOp>);
                consequence.substitute_op = Some(ours.unwrap_or(op));
            }
            consequence
        }))
    }

    fn set_symbols(
        &self,
        _: &TypedModel,
        node: &TypedNode,
        target: &mut TypedModel,
        mapping: &HashMap<OutletId, OutletId>,
        values: &HashMap<Symbol, TDim>,
    ) -> TractResult<TVec<OutletId>> {
        let shape = self.0.shape.iter().map(|size| size.substitute_all(values));
        let shape = shape.collect::<TractResult<TVec<_>>>()?.into();
        let op = Self(MultiBroadcastTo { shape });
        target.wire_node(&node.name, op, &[mapping[&node.inputs[0]]])
    }

    /// Removes itself if the next operator repeats its operands correctly.
    fn declutter(
        &self,
        model: &TypedModel,
        node: &TypedNode,
    ) -> TractResult<Option<TypedModelPatch>> {
        let input = model.outlet_fact(node.inputs[0])?;
        if input.shape == self.0.shape {
            return TypedModelPatch::shunt_one_op(model, node);
        }
        let [next] = &*node.outputs[0].successors else {
            return Ok(None);
        };
        let successor = model.node(next.node);
        let is_done_there = if successor.op_is::<TypedBinOp>() {
            let other = model.outlet_fact(successor.inputs[1 - next.slot])?;
            let output = model.outlet_fact(successor.id.into())?;
            input.rank() == other.rank()
                && multi_broadcast(&[&input.shape, &other.shape])
                    .is_ok_and(|shape| *shape == *output.shape)
        } else if let Some(product) = successor.op_as::<EinSum>() {
            self.is_done_by(product, model, successor, next.slot)?
        } else {
            false
        };
        if !is_done_there || model.output_outlets()?.contains(&node.id.into()) {
            return Ok(None);
        }
        let mut inputs = successor.inputs.clone();
        inputs[next.slot] = node.inputs[0];
        let op = successor.op.clone();
        let patch =
            TypedModelPatch::rewire(model, &inputs, &[successor.id.into()], &|patch, inputs| {
                patch.wire_node(&successor.name, op.clone(), inputs)
            })?;
        Ok(Some(patch))
    }

    as_op!();
}

impl Expanded {
    /// Returns `true` if the product keeps every axis that is repeated here, and another operand
    /// has its full size.
    fn is_done_by(
        &self,
        product: &EinSum,
        model: &TypedModel,
        node: &TypedNode,
        slot: usize,
    ) -> TractResult<bool> {
        let fact = |slot: usize| model.outlet_fact(node.inputs[slot]);
        let expand = fact(slot)?;
        let from = model.node(node.inputs[slot].node).inputs[0];
        let from = model.outlet_fact(from)?;
        if product.q_params.is_some() || from.rank() != expand.rank() || node.inputs.len() != 2 {
            return Ok(false);
        }
        let other = fact(1 - slot)?;
        for place in (0..from.rank()).filter(|place| from.shape[*place] != self.0.shape[*place]) {
            let axis = product.axes.axis((InOut::In(slot), place))?;
            let there = &axis.inputs[1 - slot];
            let is_kept = axis.outputs[0].len() == 1 && axis.inputs[slot].len() == 1;
            let is_whole = matches!(&**there, [at] if other.shape[*at] == self.0.shape[place]);
            if !is_kept || !is_whole {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
