//! One plan: a graph optimised for certain input shapes, and what runs it.
//!
//! Invariant: a failed run names the operator it was at and leaves the plan usable.

use std::cell::Cell;
use std::sync::Arc;

use tract_linalg::multithread::{Executor, multithread_tract_scope};
use tract_onnx::prelude::{
    DatumType, InferenceFact, InferenceModel, InferenceModelExt, OutletId, TValue, TVec,
    Tensor as TractTensor, TractError, TractResult, TypedModel,
};
use tract_onnx::tract_core::internal::RunOptions;
use tract_onnx::tract_core::internal::ToDim;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::plan::{SimplePlan, SimpleState, eval};
use tract_onnx::tract_hir::infer::{DimFact, Factoid, GenericFactoid, ShapeFactoid};

use super::elements::{datum_type, give, sizes, take};
use super::exact;
use super::guard::{Failure, guarded};
use super::holdings::Holdings;
use super::plans::Planned;
use super::recurrence::{Memory, memory, start_anew};
use super::watch::{WRONG, Watch, watch};
use crate::model::Dim;
use crate::tensor::{Signature, Tensor, TensorSpec};

type State = SimpleState<tract_onnx::prelude::TypedFact, Box<dyn tract_onnx::prelude::TypedOp>>;

/// What a plan is made for.
pub(super) enum Inputs<'a> {
    /// These shapes, one for each input.
    Shapes(&'a [Vec<u64>]),
    /// These tensors' shapes, and the values of some, which become part of the plan.
    Values {
        /// All inputs.
        tensors: &'a [Tensor],
        /// Whether an input's value is part of the plan.
        constant: &'a [bool],
    },
    /// Any shapes that fit the signature.
    Symbols,
}

/// A runnable plan.
pub(super) struct Plan {
    runner: Runner,
    /// Whether an input is part of the plan.
    constant: Vec<bool>,
}

/// Why there is no plan.
pub(super) struct Unplanned {
    /// What happened.
    pub(super) failure: Failure,
    /// Whether the graph was right and optimising it failed: as it is it may still run.
    pub(super) optimising: bool,
}

impl From<Failure> for Unplanned {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            optimising: false,
        }
    }
}

/// A graph that can be run again and again.
pub(super) struct Runner {
    state: State,
    /// What to look at when a node runs, by the node's number.
    watched: Vec<Option<Watch>>,
    /// Whether a node has a state that must be made again before each run but the first.
    keeps: bool,
    /// Whether it has run since its states were made.
    used: bool,
    holdings: Holdings,
}

impl Planned for Plan {
    fn holdings(&self) -> &Holdings {
        self.runner.holdings()
    }
}

impl Planned for Runner {
    fn holdings(&self) -> &Holdings {
        &self.holdings
    }
}

impl Plan {
    /// Plans `graph`, whose inputs are those of `signature`, for `inputs`.
    pub(super) fn new(
        mut graph: InferenceModel,
        signature: &Signature,
        inputs: &Inputs<'_>,
        executor: &Executor,
        optimise: bool,
    ) -> Result<Self, Unplanned> {
        let mut constant = vec![false; signature.inputs.len()];
        match inputs {
            Inputs::Shapes(shapes) => {
                for (place, (spec, shape)) in signature.inputs.iter().zip(*shapes).enumerate() {
                    set_shape(&mut graph, place, spec, shape)?;
                }
            }
            Inputs::Values {
                tensors,
                constant: wanted,
            } => {
                for (place, (spec, tensor)) in signature.inputs.iter().zip(*tensors).enumerate() {
                    set_shape(&mut graph, place, spec, tensor.shape())?;
                }
                constant.copy_from_slice(wanted);
                set_constants(&mut graph, tensors, wanted)?;
            }
            Inputs::Symbols => {
                for (place, spec) in signature.inputs.iter().enumerate() {
                    set_symbols(&mut graph, place, spec)?;
                }
            }
        }
        let runner = Runner::new(executor, optimise, || exact::prepare(graph.into_typed()?))?;
        Ok(Self { runner, constant })
    }

    /// How many nodes it has.
    pub(super) fn nodes(&self) -> u64 {
        self.runner.nodes()
    }

    /// Runs it once. A failure names the node it was at, by the plan's name for it and its operator.
    pub(super) fn run(
        &mut self,
        inputs: &[Tensor],
        signature: &Signature,
    ) -> Result<Vec<Tensor>, Failure> {
        let mut values: TVec<TValue> = TVec::new();
        for (tensor, _) in inputs
            .iter()
            .zip(&self.constant)
            .filter(|(_, known)| !**known)
        {
            values.push(TValue::from(give(tensor)?));
        }
        let values = self.runner.run(values, signature.outputs.len())?;
        let pairs = values.into_iter().zip(&signature.outputs);
        pairs.map(|(value, spec)| take(value, spec)).collect()
    }
}

impl Runner {
    /// Plans the graph that `build` gives, optimised if that is wanted.
    pub(super) fn new(
        executor: &Executor,
        optimise: bool,
        build: impl FnOnce() -> TractResult<TypedModel>,
    ) -> Result<Self, Unplanned> {
        let mut model = guarded(build)?;
        start_anew(&mut model);
        // Packing weights while planning takes threads too.
        let plan = || multithread_tract_scope(executor.clone(), || plan(model, optimise, executor));
        let state = guarded(plan).map_err(|failure| Unplanned {
            failure,
            optimising: optimise,
        })?;
        let nodes = state.plan().model().nodes().iter();
        let watched = nodes.map(|node| watch(node.op.as_op())).collect();
        let keeps = keeping(&state)?;
        Ok(Self {
            holdings: Holdings::of(state.plan().model()),
            state,
            watched,
            keeps,
            used: false,
        })
    }

    /// How many nodes it has.
    pub(super) fn nodes(&self) -> u64 {
        self.state.plan().order_without_consts().len() as u64
    }

    /// Runs it once; it must give this many outputs. A failure names the node it was at.
    pub(super) fn run(
        &mut self,
        values: TVec<TValue>,
        outputs: usize,
    ) -> Result<TVec<TValue>, Failure> {
        self.forget()?;
        let current = Cell::new(None);
        let (state, watched) = (&mut self.state, &self.watched);
        let result = guarded(|| {
            state.run_plan_with_eval(values, |context, op_state, node, inputs| {
                current.set(Some(node.id));
                let Some(watch) = watched.get(node.id).copied().flatten() else {
                    return eval(context, op_state, node, inputs);
                };
                watch.before(&inputs)?;
                let outputs = eval(context, op_state, node, inputs.clone())?;
                watch.after(&inputs, &outputs)?;
                Ok(outputs)
            })
        });
        match result {
            Ok(values) if values.len() == outputs => Ok(values),
            Ok(values) => Err(Failure::new(format!(
                "it gave {} outputs, the model has {outputs}",
                values.len()
            ))),
            Err(failure) => {
                let operator = current.get().map(|id| self.describe(id));
                self.renew()?;
                Err(failure.at(operator))
            }
        }
    }

    fn describe(&self, id: usize) -> String {
        let node = &self.state.plan().model().nodes()[id];
        node.name.clone()
    }

    /// Makes states anew that the run before this one has left behind.
    fn forget(&mut self) -> Result<(), Failure> {
        if self.used && self.keeps {
            self.renew()?;
        }
        self.used = true;
        Ok(())
    }

    /// A failed run leaves half of its values behind.
    fn renew(&mut self) -> Result<(), Failure> {
        let plan = Arc::clone(self.state.plan());
        self.state = guarded(|| plan.spawn())?;
        Ok(())
    }
}

fn plan(model: TypedModel, optimise: bool, executor: &Executor) -> TractResult<State> {
    let mut model = if optimise {
        model.into_optimized()?
    } else {
        model
    };
    exact::settle(&mut model);
    let options = RunOptions {
        executor: Some(executor.clone()),
        ..RunOptions::default()
    };
    let plan: Arc<SimplePlan<_, _>> = SimplePlan::new_with_options(model, &options)?;
    plan.spawn()
}

/// Whether a node has a state that does not begin anew by itself.
fn keeping(state: &State) -> Result<bool, Failure> {
    let mut keeps = false;
    for (node, kept) in state.plan().model().nodes().iter().zip(&state.op_states) {
        keeps |= kept.is_some() && guarded(|| memory(node.op.as_op()))? == Memory::Keeps;
    }
    Ok(keeps)
}

fn set_fact(graph: &mut InferenceModel, place: usize, fact: InferenceFact) -> Result<(), Failure> {
    guarded(|| {
        graph.set_input_fact(place, fact)?;
        Ok(())
    })
}

fn set_shape(
    graph: &mut InferenceModel,
    place: usize,
    spec: &TensorSpec,
    shape: &[u64],
) -> Result<(), Failure> {
    let dtype = element(spec)?;
    let shape = sizes(shape)?;
    set_fact(graph, place, InferenceFact::dt_shape(dtype, shape))
}

/// Keeps the symbols that the model names; each unnamed dimension gets one of its own.
fn set_symbols(graph: &mut InferenceModel, place: usize, spec: &TensorSpec) -> Result<(), Failure> {
    let dtype = element(spec)?;
    let Some(dims) = &spec.dims else {
        return Err(Failure::new(format!(
            "the rank of `{}` is unknown",
            spec.name
        )));
    };
    let mut facts: Vec<DimFact> = Vec::new();
    for (at, dim) in dims.iter().enumerate() {
        let dim = if let Dim::Fixed(size) = dim {
            sizes(&[*size])?[0].to_dim()
        } else {
            let known = guarded(|| Ok(graph.input_fact(place)?.shape.dim(at)))?;
            let named = known.and_then(|fact| fact.concretize());
            named.unwrap_or_else(|| {
                let own = format!("pkgtool_{place}_{at}");
                graph.symbols.sym(&own).to_dim()
            })
        };
        facts.push(GenericFactoid::Only(dim));
    }
    let shape = ShapeFactoid::closed(facts.into_iter().collect());
    set_fact(graph, place, InferenceFact::dt_shape(dtype, shape))
}

fn set_constants(
    graph: &mut InferenceModel,
    tensors: &[Tensor],
    constant: &[bool],
) -> Result<(), Failure> {
    let places = constant.iter().enumerate().rev();
    for (place, _) in places.filter(|(_, constant)| **constant) {
        let value = Arc::new(give(&tensors[place])?);
        guarded(|| {
            let outlet = graph.inputs.remove(place);
            check_sizes(graph, outlet, &value)?;
            let fact = InferenceFact::try_from(&value)?;
            let node = &mut graph.nodes[outlet.node];
            node.op = Box::new(Const::new(value)?);
            node.outputs[outlet.slot].fact = fact;
            Ok(())
        })?;
    }
    Ok(())
}

/// Operators that take a size from their second input, or from their only one.
const SIZED: [&str; 4] = ["MultiBroadcastTo", "Tile", "ConstantOfShape", "Reshape"];

/// The library reads sizes as 32-bit numbers.
fn check_sizes(graph: &InferenceModel, outlet: OutletId, value: &TractTensor) -> TractResult<()> {
    if value.datum_type() != DatumType::I64 {
        return Ok(());
    }
    let values = value.try_as_plain_ram()?;
    let large = values
        .as_slice::<i64>()?
        .iter()
        .find(|size| i32::try_from(**size).is_err());
    let (Some(large), Some(output)) = (large, graph.nodes[outlet.node].outputs.get(outlet.slot))
    else {
        return Ok(());
    };
    for next in &output.successors {
        let node = &graph.nodes[next.node];
        let is_size = next.slot + 1 == node.inputs.len() && SIZED.contains(&&*node.op.name());
        if is_size {
            return Err(TractError::msg(format!(
                "node `{}`: a size of {large} {WRONG}",
                node.name
            )));
        }
    }
    Ok(())
}

fn element(spec: &TensorSpec) -> Result<DatumType, Failure> {
    datum_type(spec.dtype).ok_or_else(|| Failure::new(format!("it has no {} tensors", spec.dtype)))
}
