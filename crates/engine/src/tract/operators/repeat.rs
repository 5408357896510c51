//! `Loop`: a subgraph that runs repeatedly on its own outputs.
//!
//! The number of iterations is known only at run time, and so is the number of collected slices.
//! Carried tensors may change their sizes from iteration to iteration, but neither type nor rank.

use tract_onnx::model::{ParsingContext, optional_inputs, optional_outputs};
use tract_onnx::pb::{GraphProto, NodeProto, type_proto};
use tract_onnx::tensor::translate_inference_fact;
use tract_onnx::tract_hir::internal::*;

use super::body::{Body, plain_inputs};
use super::facts::{common, facts_of, outer_fact, without_sizes};

/// A `Loop` node. Inputs of its graph: iteration number, condition, carried tensors, captured
/// tensors.
#[derive(Debug, Clone)]
struct Loop {
    body: Body,
    /// The input with the maximum number of iterations.
    turns: Option<usize>,
    /// The input with the condition for the first iteration.
    condition: Option<usize>,
    /// The inputs with the initial carried tensors.
    carried: Vec<usize>,
    /// The captured inputs.
    captured: Vec<usize>,
    /// The facts that the graph declares for its outputs.
    declared: Vec<InferenceFact>,
    /// The graph's outputs, counted after the condition, that are outputs of the node.
    outputs: Vec<usize>,
}

/// Builds the operator of a node.
pub(super) fn build(
    context: &ParsingContext,
    node: &NodeProto,
) -> TractResult<(Box<dyn InferenceOp>, Vec<String>)> {
    let (body, graph) = Body::read(context, node, "body")?;
    let given: Vec<Option<usize>> = optional_inputs(node).take(node.input.len()).collect();
    let carried = given
        .iter()
        .skip(2)
        .map(|input| input.context("a carried input of a loop is missing"));
    let carried = carried.collect::<TractResult<Vec<usize>>>()?;
    let own = given.iter().flatten().count();
    let places = 0..node.output.len();
    let outputs = places
        .zip(optional_outputs(node))
        .filter(|(_, slot)| slot.is_some());
    let outputs: Vec<usize> = outputs.map(|(place, _)| place).collect();
    ensure!(
        body.outputs() > carried.len() && outputs.iter().all(|it| *it + 1 < body.outputs()),
        "its graph has {} outputs, too few for the carried and collected tensors",
        body.outputs()
    );
    let captured = body.captured.clone();
    let repeat = Loop {
        turns: given.first().copied().flatten(),
        condition: given.get(1).copied().flatten(),
        carried,
        captured: (own..own + captured.len()).collect(),
        declared: declared(context, &graph)?,
        outputs,
        body,
    };
    Ok((Box::new(repeat), captured))
}

/// Returns the facts that a graph declares for its outputs, without sizes.
fn declared(context: &ParsingContext, graph: &GraphProto) -> TractResult<Vec<InferenceFact>> {
    let outputs = graph.output.iter().map(|output| {
        let value = output.r#type.as_ref().and_then(|kind| kind.value.as_ref());
        let Some(type_proto::Value::TensorType(tensor)) = value else {
            return Ok(InferenceFact::default());
        };
        Ok(without_sizes(&translate_inference_fact(
            context, tensor, false,
        )?))
    });
    outputs.collect()
}

impl Loop {
    /// Returns the facts of the graph's outputs after the condition, for inputs of these facts.
    fn found(&self, inputs: &[InferenceFact]) -> TractResult<Vec<InferenceFact>> {
        let scalar = |dtype: DatumType| InferenceFact::dt_shape(dtype, [0_usize; 0]);
        let of = |places: &[usize]| -> Vec<InferenceFact> {
            places.iter().map(|at| inputs[*at].clone()).collect()
        };
        let mut carried = of(&self.carried);
        for fact in &mut carried {
            *fact = fact.clone().without_value();
        }
        let captured = of(&self.captured);
        // Each round drops at least one size, or is the last one.
        let sizes = carried.iter().map(|fact| fact.shape.dims().count());
        for _ in 0..=sizes.sum::<usize>() + 1 {
            let mut given = vec![scalar(i64::datum_type()), scalar(bool::datum_type())];
            given.extend(carried.iter().chain(&captured).cloned());
            let mut found: Vec<InferenceFact> = match self.body.facts(&given) {
                Ok(found) => found.into_iter().collect(),
                Err(_) if carried.iter().any(|fact| fact.shape.concretize().is_some()) => {
                    carried = carried.iter().map(without_sizes).collect();
                    continue;
                }
                Err(error) => return Err(error),
            };
            for (found, declared) in found.iter_mut().zip(&self.declared) {
                if let Ok(both) = found.unify(declared) {
                    *found = both;
                }
            }
            let mut found = found.split_off(1);
            let next: Vec<InferenceFact> = carried
                .iter()
                .zip(&found)
                .map(|(old, new)| common(old, new))
                .collect();
            if next
                .iter()
                .zip(&carried)
                .all(|(new, old)| new.shape == old.shape)
            {
                found.splice(..next.len(), next);
                for collected in &mut found[self.carried.len()..] {
                    let mut dims: TVec<DimFact> = tvec!(GenericFactoid::Any);
                    dims.extend(collected.shape.dims().cloned());
                    if collected.shape.rank().concretize().is_some() {
                        collected.shape = ShapeFactoid::closed(dims);
                    }
                    collected.value = GenericFactoid::Any;
                }
                return Ok(found);
            }
            carried = next;
        }
        bail!("loops that carry tensors of computed shapes are not supported")
    }
}

impl PartialEq for Loop {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for Loop {}

impl Op for Loop {
    fn name(&self) -> StaticName {
        "Loop".into()
    }

    not_a_typed_op!();
}

impl EvalOp for Loop {
    not_out_of_plan!();
}

impl InferenceOp for Loop {
    fn infer_facts(
        &mut self,
        inputs: TVec<&InferenceFact>,
        outputs: TVec<&InferenceFact>,
        observed: TVec<&InferenceFact>,
    ) -> TractResult<(
        TVec<InferenceFact>,
        TVec<InferenceFact>,
        TVec<InferenceFact>,
    )> {
        let own = |facts: TVec<&InferenceFact>| facts.into_iter().cloned().collect();
        let inputs: TVec<InferenceFact> = own(inputs);
        let mut outputs: TVec<InferenceFact> = own(outputs);
        let is_known = inputs
            .iter()
            .all(|fact| fact.datum_type.concretize().is_some());
        // Unknown facts may become known later. Errors are reported when the graph is built.
        if let Some(found) = is_known.then(|| self.found(&inputs).ok()).flatten() {
            for (output, place) in outputs.iter_mut().zip(&self.outputs) {
                output.unify_with(&found[*place])?;
            }
        }
        Ok((inputs, outputs, own(observed)))
    }

    fn nboutputs(&self) -> TractResult<usize> {
        Ok(self.outputs.len())
    }

    fn to_typed(
        &self,
        _: &InferenceModel,
        node: &InferenceNode,
        target: &mut TypedModel,
        mapping: &HashMap<OutletId, OutletId>,
    ) -> TractResult<TVec<OutletId>> {
        let inputs: TVec<OutletId> = node.inputs.iter().map(|outlet| mapping[outlet]).collect();
        let inputs = plain_inputs(&node.name, target, &inputs)?;
        let found = self.found(&facts_of(target, &inputs)?)?;
        let facts = self
            .outputs
            .iter()
            .map(|place| outer_fact(target, &found[*place]));
        let turning = RuntimeLoop {
            facts: facts.collect::<TractResult<_>>()?,
            empty: found.iter().map(empty).collect(),
            of: self.clone(),
        };
        target.wire_node(&node.name, turning, &inputs)
    }

    as_op!();
}

/// Returns the result of collecting slices in zero iterations: unknown sizes become 0.
fn empty(fact: &InferenceFact) -> Option<(DatumType, TVec<usize>)> {
    let sizes = fact.shape.dims().skip(1).map(|dim| {
        let size = dim.concretize().and_then(|size| size.to_usize().ok());
        size.unwrap_or(0)
    });
    let shape = std::iter::once(0).chain(sizes).collect();
    Some((fact.datum_type.concretize()?, shape))
}

/// A `Loop` in a graph that can run.
#[derive(Debug, Clone)]
struct RuntimeLoop {
    of: Loop,
    facts: TVec<TypedFact>,
    /// For each output, its value after zero iterations.
    empty: Vec<Option<(DatumType, TVec<usize>)>>,
}

impl PartialEq for RuntimeLoop {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for RuntimeLoop {}

impl Op for RuntimeLoop {
    fn name(&self) -> StaticName {
        "Loop".into()
    }

    fn mints_runtime_symbols(&self) -> bool {
        true
    }

    op_as_typed_op!();
}

impl EvalOp for RuntimeLoop {
    op_out_of_plan!();

    fn eval(&self, _: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let of = &self.of;
        let most = of
            .turns
            .map(|at| inputs[at].cast_to_scalar::<i64>())
            .transpose()?;
        let mut goes_on = match of.condition {
            Some(at) => inputs[at].cast_to_scalar::<bool>()?,
            None => true,
        };
        let mut carried: TVec<TValue> = of.carried.iter().map(|at| inputs[*at].clone()).collect();
        let mut collected: Vec<Vec<TValue>> =
            vec![Vec::new(); of.body.outputs() - 1 - carried.len()];
        let mut turn: i64 = 0;
        while goes_on && most.is_none_or(|most| turn < most) {
            let mut given: TVec<TValue> = tvec!(tensor0(turn).into(), tensor0(true).into());
            given.append(&mut carried);
            given.extend(of.captured.iter().map(|at| inputs[*at].clone()));
            let mut made = of.body.run(&given)?.into_iter();
            let condition = made
                .next()
                .context("the condition of a loop's graph is missing")?;
            goes_on = condition.cast_to_scalar::<bool>()?;
            carried.extend(made.by_ref().take(of.carried.len()));
            for (slices, slice) in collected.iter_mut().zip(made) {
                slices.push(slice);
            }
            turn += 1;
        }
        let mut all = carried
            .into_iter()
            .map(Ok)
            .collect::<Vec<TractResult<TValue>>>();
        for (slices, empty) in collected.iter().zip(&self.empty[all.len()..]) {
            all.push(if slices.is_empty() {
                let (dtype, shape) = empty.as_ref().context("its type is unknown")?;
                Tensor::zero_dt(*dtype, shape).map(IntoTValue::into_tvalue)
            } else {
                stack(slices)
            });
        }
        let mut all: Vec<Option<TractResult<TValue>>> = all.into_iter().map(Some).collect();
        let outputs = of.outputs.iter();
        outputs
            .map(|place| all[*place].take().context("an output is used twice")?)
            .collect()
    }
}

/// Slices as one tensor.
fn stack(slices: &[TValue]) -> TractResult<TValue> {
    let slices = slices.iter().map(|slice| {
        let mut slice = slice.clone().into_tensor();
        slice.insert_axis(0)?;
        Ok(slice)
    });
    let slices = slices.collect::<TractResult<Vec<Tensor>>>()?;
    Ok(Tensor::stack_tensors(0, &slices)?.into_tvalue())
}

impl TypedOp for RuntimeLoop {
    fn output_facts(&self, _: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(self.facts.clone())
    }

    as_op!();
}
