//! A subgraph inside a node ([`SubgraphBody`]), such as the body of a `Loop` or a branch of an `If`: infers
//! the facts of its outputs, and runs it.
//!
//! A subgraph is planned when it runs, for the shapes of that run. Errors in a branch that is never
//! taken therefore never matter. Small integers become part of a plan if planning fails without
//! their values, as for whole models.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tract_linalg::multithread::current_tract_executor;
use tract_onnx::model::ParsingContext;
use tract_onnx::pb::{GraphProto, NodeProto, TypeProto, type_proto};
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::attribute;
use crate::graph::corrections;
use crate::graph::guard::LibraryFailure;
use crate::graph::plans::Plans;
use crate::graph::runner::Runner;

/// Tensors with more elements than this are data, not shapes or axes.
const MAX_CONSTANT_ELEMENTS: usize = 64;

/// A subgraph inside a node.
#[derive(Clone)]
pub(super) struct SubgraphBody {
    graph: Arc<InferenceModel>,
    /// Names of the outer tensors that it uses: its last inputs.
    pub(super) captured: Vec<String>,
    plans: Arc<Mutex<BodyPlans>>,
}

/// The plans made so far.
struct BodyPlans {
    known: Plans<SubgraphKey, Runner>,
    /// Is `true` if planning needs values of integers.
    needs_values: bool,
}

/// The inputs that a plan was made for: types, shapes and the values that are part of it.
type SubgraphKey = Vec<(DatumType, TVec<usize>, Option<Vec<u8>>)>;

impl fmt::Debug for SubgraphBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "graph of {} nodes", self.graph.nodes().len())
    }
}

impl SubgraphBody {
    /// Reads the subgraph in this attribute of a node.
    pub(super) fn read(
        context: &ParsingContext,
        node: &NodeProto,
        name: &str,
    ) -> TractResult<(Self, GraphProto)> {
        let graph = attribute(node, name).and_then(|found| found.g.clone());
        let mut graph = graph.with_context(|| format!("the graph `{name}` is missing"))?;
        // A loop's graph may omit the types of carried tensors, but the library requires them.
        let untyped: Vec<usize> = (0..graph.input.len())
            .filter(|place| graph.input[*place].r#type.is_none())
            .collect();
        for place in &untyped {
            graph.input[*place].r#type = Some(any_type());
        }
        let mut parsed = context.parse_graph(&graph)?;
        for place in untyped {
            parsed
                .model
                .set_input_fact(place, InferenceFact::default())?;
        }
        let planned = BodyPlans {
            known: Plans::new(weights(&parsed.model)),
            needs_values: false,
        };
        let body = Self {
            graph: Arc::new(parsed.model),
            captured: parsed.unresolved_inputs,
            plans: Arc::new(Mutex::new(planned)),
        };
        Ok((body, graph))
    }

    /// Returns the number of outputs.
    pub(super) fn outputs(&self) -> usize {
        self.graph.outputs.len()
    }

    /// Returns the facts of the outputs for inputs of these facts, as far as they are known.
    pub(super) fn facts(&self, inputs: &[InferenceFact]) -> TractResult<TVec<InferenceFact>> {
        let mut graph = self.given(inputs)?;
        graph.analyse(false)?;
        let facts = (0..self.outputs()).map(|at| graph.output_fact(at).cloned());
        facts.collect()
    }

    /// Returns the graph for inputs of these facts.
    fn typed(&self, inputs: &[InferenceFact]) -> TractResult<TypedModel> {
        self.given(inputs)?.into_typed()
    }

    fn given(&self, inputs: &[InferenceFact]) -> TractResult<InferenceModel> {
        let mut graph = (*self.graph).clone();
        ensure!(
            graph.inputs.len() == inputs.len(),
            "a subgraph needs {} inputs, got {}",
            graph.inputs.len(),
            inputs.len()
        );
        for (place, fact) in inputs.iter().enumerate() {
            // The graph may declare symbolic sizes whose values are known here.
            let declared = graph.input_fact(place)?;
            let known = declared
                .unify(fact)
                .ok()
                .filter(|_| fact.shape.concretize().is_none());
            graph.set_input_fact(place, known.unwrap_or_else(|| fact.clone()))?;
        }
        Ok(graph)
    }

    /// Inlines the subgraph into the outer graph, with `inputs` as its inputs.
    pub(super) fn write(
        &self,
        prefix: &str,
        target: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let facts = inputs
            .iter()
            .map(|outlet| Ok(target.outlet_fact(*outlet)?.into()));
        let facts = facts.collect::<TractResult<Vec<InferenceFact>>>()?;
        let graph = self.typed(&facts)?;
        let sources = graph.input_outlets()?.iter().copied();
        let mut written: HashMap<OutletId, OutletId> =
            sources.zip(inputs.iter().copied()).collect();
        for id in graph.eval_order()? {
            let node = graph.node(id);
            if TypedModel::is_source(&node.op) {
                continue;
            }
            let from: TVec<OutletId> = node.inputs.iter().map(|outlet| written[outlet]).collect();
            let name = format!("{prefix}/{}", node.name);
            let made = target.wire_node(name, node.op.clone(), &from)?;
            for (slot, outlet) in made.into_iter().enumerate() {
                written.insert(OutletId::new(id, slot), outlet);
            }
        }
        let outputs = graph.output_outlets()?.iter();
        Ok(outputs.map(|outlet| written[outlet]).collect())
    }

    /// Runs the subgraph. Symbolic sizes in its outputs become plain integers.
    pub(super) fn run(&self, inputs: &[TValue]) -> TractResult<TVec<TValue>> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let stages = if plans.needs_values {
            &[true][..]
        } else {
            &[false, true]
        };
        let mut first: Option<LibraryFailure> = None;
        for with_values in stages {
            match self.attempt(&mut plans, inputs, *with_values) {
                Ok(outputs) => {
                    plans.needs_values |= *with_values;
                    let plain = outputs.into_iter().map(plain);
                    return plain.collect();
                }
                Err(failure) => {
                    first.get_or_insert(failure);
                }
            }
        }
        let failure = first.context("no plan was attempted")?;
        Err(TractError::msg(failure.text()))
    }

    fn attempt(
        &self,
        plans: &mut BodyPlans,
        inputs: &[TValue],
        with_values: bool,
    ) -> Result<TVec<TValue>, LibraryFailure> {
        let is_constant = |value: &TValue| {
            let is_number = value.datum_type().is_float();
            with_values && !is_number && value.len() <= MAX_CONSTANT_ELEMENTS
        };
        let key = inputs.iter().map(|value| {
            let bytes = is_constant(value).then(|| value.as_bytes().to_vec());
            (value.datum_type(), value.shape().into(), bytes)
        });
        let key: SubgraphKey = key.collect();
        if !plans.known.find(|known| *known == key) {
            plans.known.make_room();
            let planned = |optimise| {
                let build = || self.for_values(inputs, &is_constant)?.into_typed();
                corrections::runner(&current_tract_executor(), optimise, build)
            };
            let runner = planned(true)
                .or_else(|unplanned| {
                    if unplanned.is_optimiser_error {
                        planned(false)
                    } else {
                        Err(unplanned)
                    }
                })
                .map_err(|unplanned| unplanned.failure)?;
            plans.known.keep(key, runner);
        }
        let runner = plans.known.last_mut().expect("it was just put there");
        let values = inputs.iter().filter(|value| !is_constant(value));
        runner.run(values.cloned().collect(), self.outputs())
    }

    /// Returns the graph for these tensors, some of which become part of it.
    fn for_values(
        &self,
        inputs: &[TValue],
        is_constant: &dyn Fn(&TValue) -> bool,
    ) -> TractResult<InferenceModel> {
        let shapes = inputs.iter();
        let facts = shapes.map(|value| InferenceFact::dt_shape(value.datum_type(), value.shape()));
        let mut graph = self.given(&facts.collect::<Vec<_>>())?;
        for (place, value) in inputs.iter().enumerate().rev() {
            if is_constant(value) {
                let value = value.clone().into_arc_tensor();
                let outlet = graph.inputs.remove(place);
                let fact = InferenceFact::try_from(&value)?;
                let node = &mut graph.nodes[outlet.node];
                node.op = Box::new(Const::new(value)?);
                node.outputs[outlet.slot].fact = fact;
            }
        }
        Ok(graph)
    }
}

/// Returns the size of a graph's constants, in bytes.
fn weights(graph: &InferenceModel) -> u64 {
    let constants = graph.nodes().iter();
    let constants = constants.filter_map(|node| node.op_as::<Const>());
    let sizes = constants.map(|it| it.val().len() * it.val().datum_type().size_of());
    sizes.fold(0, |sum, size| sum + size as u64)
}

/// A placeholder type for an input without one, which is removed later.
fn any_type() -> TypeProto {
    let tensor = type_proto::Tensor {
        elem_type: 1,
        ..type_proto::Tensor::default()
    };
    TypeProto {
        value: Some(type_proto::Value::TensorType(tensor)),
        ..TypeProto::default()
    }
}

/// Converts a tensor of symbolic sizes to integers.
fn plain(value: TValue) -> TractResult<TValue> {
    if value.datum_type() == TDim::datum_type() {
        return Ok(value.cast_to::<i64>()?.into_owned().into_tvalue());
    }
    Ok(value)
}

/// Returns the type of a tensor outside of the library's arithmetic with sizes.
pub(super) fn plain_type(dtype: DatumType) -> DatumType {
    if dtype == TDim::datum_type() {
        i64::datum_type()
    } else {
        dtype
    }
}

/// Converts tensors of symbolic sizes in a graph to integers.
pub(super) fn plain_inputs(
    prefix: &str,
    target: &mut TypedModel,
    inputs: &[OutletId],
) -> TractResult<TVec<OutletId>> {
    let mut plain: TVec<OutletId> = inputs.into();
    for (at, outlet) in plain.iter_mut().enumerate() {
        let dtype = target.outlet_fact(*outlet)?.datum_type;
        if dtype != plain_type(dtype) {
            let name = format!("{prefix}.plain.{at}");
            *outlet = target.wire_node(name, cast(plain_type(dtype)), &[*outlet])?[0];
        }
    }
    Ok(plain)
}
