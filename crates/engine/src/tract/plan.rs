//! A plan: a model's graph, optimised for certain shapes or values of its inputs.

use std::sync::Arc;

use tract_linalg::multithread::Executor;
use tract_onnx::prelude::{
    DatumType, InferenceFact, InferenceModel, InferenceModelExt, OutletId, TValue, TVec,
    Tensor as TractTensor, TractError, TractResult,
};
use tract_onnx::tract_core::internal::ToDim;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_hir::infer::{DimFact, Factoid, GenericFactoid, ShapeFactoid};

use crate::graph::corrections;
use crate::graph::elements::{datum_type, from_tract, sizes, to_tract};
use crate::graph::guard::{LibraryFailure, guarded};
use crate::graph::holdings::MemoryUse;
use crate::graph::plans::CachedPlan;
use crate::graph::runner::{PlanError, Runner};
use crate::graph::watch::WRONG_RESULT;
use crate::tensor::{Signature, Tensor, TensorSpec};
use pkgtool_model::Dim;

/// The inputs that a plan is made for.
pub(super) enum PlanInputs<'a> {
    /// These shapes, one per input.
    Shapes(&'a [Vec<u64>]),
    /// The shapes of these tensors. The values of some of them become part of the plan.
    Values {
        /// All inputs.
        tensors: &'a [Tensor],
        /// For each input, `true` if its value is part of the plan.
        constant: &'a [bool],
    },
    /// Any shapes that fit the signature.
    Symbols,
}

/// A runnable plan.
pub(super) struct Plan {
    runner: Runner,
    /// For each input, `true` if it is part of the plan.
    constant: Vec<bool>,
}

impl CachedPlan for Plan {
    fn memory_use(&self) -> &MemoryUse {
        self.runner.memory_use()
    }
}

impl Plan {
    /// Plans `graph`, which has the inputs of `signature`, for `inputs`.
    pub(super) fn new(
        mut graph: InferenceModel,
        signature: &Signature,
        inputs: &PlanInputs<'_>,
        executor: &Executor,
        optimise: bool,
    ) -> Result<Self, PlanError> {
        let mut constant = vec![false; signature.inputs.len()];
        match inputs {
            PlanInputs::Shapes(shapes) => {
                for (place, (spec, shape)) in signature.inputs.iter().zip(*shapes).enumerate() {
                    set_shape(&mut graph, place, spec, shape)?;
                }
            }
            PlanInputs::Values {
                tensors,
                constant: wanted,
            } => {
                for (place, (spec, tensor)) in signature.inputs.iter().zip(*tensors).enumerate() {
                    set_shape(&mut graph, place, spec, tensor.shape())?;
                }
                constant.copy_from_slice(wanted);
                set_constants(&mut graph, tensors, wanted)?;
            }
            PlanInputs::Symbols => {
                for (place, spec) in signature.inputs.iter().enumerate() {
                    set_symbols(&mut graph, place, spec)?;
                }
            }
        }
        let runner = corrections::runner(executor, optimise, || graph.into_typed())?;
        Ok(Self { runner, constant })
    }

    /// Returns the runner of the plan's graph.
    pub(super) fn runner_mut(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Returns the number of nodes.
    pub(super) fn nodes(&self) -> u64 {
        self.runner.nodes()
    }

    /// Runs the plan once. A failure names the node that failed, by the plan's name for it, and its
    /// operator.
    pub(super) fn run(
        &mut self,
        inputs: &[Tensor],
        signature: &Signature,
    ) -> Result<Vec<Tensor>, LibraryFailure> {
        let mut values: TVec<TValue> = TVec::new();
        for (tensor, _) in inputs
            .iter()
            .zip(&self.constant)
            .filter(|(_, known)| !**known)
        {
            values.push(TValue::from(to_tract(tensor)?));
        }
        let values = self.runner.run(values, signature.outputs.len())?;
        let pairs = values.into_iter().zip(&signature.outputs);
        pairs.map(|(value, spec)| from_tract(value, spec)).collect()
    }
}

fn set_fact(
    graph: &mut InferenceModel,
    place: usize,
    fact: InferenceFact,
) -> Result<(), LibraryFailure> {
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
) -> Result<(), LibraryFailure> {
    let dtype = datum_type(spec.dtype);
    let shape = sizes(shape)?;
    set_fact(graph, place, InferenceFact::dt_shape(dtype, shape))
}

/// Keeps the symbols that the model names; each unnamed dimension gets its own symbol.
fn set_symbols(
    graph: &mut InferenceModel,
    place: usize,
    spec: &TensorSpec,
) -> Result<(), LibraryFailure> {
    let dtype = datum_type(spec.dtype);
    let Some(dims) = &spec.dims else {
        return Err(LibraryFailure::new(format!(
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
) -> Result<(), LibraryFailure> {
    let places = constant.iter().enumerate().rev();
    for (place, _) in places.filter(|(_, constant)| **constant) {
        let value = Arc::new(to_tract(&tensors[place])?);
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

/// Operators whose second or only input is a size.
const SIZE_CONSUMERS: [&str; 4] = ["MultiBroadcastTo", "Tile", "ConstantOfShape", "Reshape"];

/// Rejects sizes that exceed 32 bits, because the library truncates them.
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
        let is_size =
            next.slot + 1 == node.inputs.len() && SIZE_CONSUMERS.contains(&&*node.op.name());
        if is_size {
            return Err(TractError::msg(format!(
                "node `{}`: a size of {large} {WRONG_RESULT}",
                node.name
            )));
        }
    }
    Ok(())
}
