//! `Loop`: a subgraph that runs repeatedly on its own outputs.
//!
//! The number of iterations is known only at run time, and so is the number of collected slices.
//! Carried tensors may change their sizes from iteration to iteration, but neither type nor rank.

use tract_onnx::model::{ParsingContext, optional_inputs, optional_outputs};
use tract_onnx::pb::{GraphProto, NodeProto, type_proto};
use tract_onnx::tensor::translate_inference_fact;
use tract_onnx::tract_hir::internal::*;

use super::body::{SubgraphBody, plain_inputs};
use super::facts::{common, facts_of, outer_fact, without_sizes};
use super::subgraph::{SubgraphOperator, subgraph_operator};
use crate::frontends::onnx::node_operator::{Built, Wired};
use crate::graph::kernel::Kernel;

/// A `Loop` node. Inputs of its graph: iteration number, condition, carried tensors, captured
/// tensors.
#[derive(Debug, Clone)]
struct Loop {
    body: SubgraphBody,
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
pub(super) fn build(context: &ParsingContext, node: &NodeProto) -> Built {
    let (body, graph) = SubgraphBody::read(context, node, "body")?;
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
    subgraph_operator(repeat, captured)
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

impl SubgraphOperator for Loop {
    const NAME: &'static str = "Loop";

    fn outputs(&self) -> usize {
        self.outputs.len()
    }

    fn infer(&mut self, inputs: &[&InferenceFact]) -> TractResult<Option<TVec<InferenceFact>>> {
        let inputs: Vec<InferenceFact> = inputs.iter().copied().cloned().collect();
        let is_known = inputs
            .iter()
            .all(|fact| fact.datum_type.concretize().is_some());
        // Unknown facts may become known later. Errors are reported when the graph is built.
        let found = is_known.then(|| self.found(&inputs).ok()).flatten();
        let outputs = self.outputs.iter();
        Ok(found.map(|found| outputs.map(|place| found[*place].clone()).collect()))
    }

    fn wire(
        &self,
        _: Option<Arc<Tensor>>,
        prefix: &str,
        target: &mut TypedModel,
        inputs: &[OutletId],
    ) -> Wired {
        let inputs = plain_inputs(prefix, target, inputs)?;
        let found = self.found(&facts_of(target, &inputs)?)?;
        let facts = self
            .outputs
            .iter()
            .map(|place| outer_fact(target, &found[*place]));
        let facts = facts.collect::<TractResult<_>>()?;
        let empty: Vec<_> = found.iter().map(empty).collect();
        let of = self.clone();
        let turning = Kernel::of_values(Self::NAME, facts, move |_, inputs| of.run(&empty, inputs));
        target.wire_node(prefix, turning.binding(), &inputs)
    }
}

/// Returns the result of collecting slices in zero iterations: unknown sizes become 0.
fn empty(fact: &InferenceFact) -> Option<EmptyTensor> {
    let sizes = fact.shape.dims().skip(1).map(|dim| {
        let size = dim.concretize().and_then(|size| size.to_usize().ok());
        size.unwrap_or(0)
    });
    let shape = std::iter::once(0).chain(sizes).collect();
    Some((fact.datum_type.concretize()?, shape))
}

/// The dtype and the shape of a tensor without elements.
type EmptyTensor = (DatumType, TVec<usize>);

impl Loop {
    /// Runs the loop. `empty` has the value of each output after zero iterations.
    fn run(&self, empty: &[Option<EmptyTensor>], inputs: &[TValue]) -> TractResult<TVec<TValue>> {
        let most = self
            .turns
            .map(|at| inputs[at].cast_to_scalar::<i64>())
            .transpose()?;
        let mut goes_on = match self.condition {
            Some(at) => inputs[at].cast_to_scalar::<bool>()?,
            None => true,
        };
        let mut carried: TVec<TValue> = self.carried.iter().map(|at| inputs[*at].clone()).collect();
        let mut collected: Vec<Vec<TValue>> =
            vec![Vec::new(); self.body.outputs() - 1 - carried.len()];
        let mut turn: i64 = 0;
        while goes_on && most.is_none_or(|most| turn < most) {
            let mut given: TVec<TValue> = tvec!(tensor0(turn).into(), tensor0(true).into());
            given.append(&mut carried);
            given.extend(self.captured.iter().map(|at| inputs[*at].clone()));
            let mut made = self.body.run(&given)?.into_iter();
            let condition = made
                .next()
                .context("the condition of a loop's graph is missing")?;
            goes_on = condition.cast_to_scalar::<bool>()?;
            carried.extend(made.by_ref().take(self.carried.len()));
            for (slices, slice) in collected.iter_mut().zip(made) {
                slices.push(slice);
            }
            turn += 1;
        }
        let mut all = carried
            .into_iter()
            .map(Ok)
            .collect::<Vec<TractResult<TValue>>>();
        for (slices, empty) in collected.iter().zip(&empty[all.len()..]) {
            all.push(if slices.is_empty() {
                let (dtype, shape) = empty.as_ref().context("its type is unknown")?;
                Tensor::zero_dt(*dtype, shape).map(IntoTValue::into_tvalue)
            } else {
                stack(slices)
            });
        }
        let mut all: Vec<Option<TractResult<TValue>>> = all.into_iter().map(Some).collect();
        let outputs = self.outputs.iter();
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
