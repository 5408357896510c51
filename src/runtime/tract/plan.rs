//! Plans: a model made ready for one combination of input shapes.
//!
//! Small integer and boolean inputs (shapes, axes, paddings) can be made part of a plan by value:
//! then tract can plan models whose shapes depend on them. It is tried only where a plan by shape
//! alone fails, since every new value needs a new plan. A plan with symbols takes any shape; it is
//! slower than one for a shape, and tract cannot make it for every model.

use std::sync::Arc;

use tract_onnx::prelude::{
    InferenceModel, InferenceModelExt, IntoTValue, TValue, TVec, TractResult,
};
use tract_onnx::tract_core::tract_linalg::multithread::{Executor, multithread_tract_scope};
use tract_onnx::tract_hir::infer::InferenceFact;
use tract_onnx::tract_hir::internal::{RunOptions, TypedSimplePlan, TypedSimpleState};
use tract_onnx::tract_hir::tract_core::ops::konst::Const;

use super::convert::{datum_type, shape, to_tract};
use super::{NAME, chain, guard, load_error};
use crate::model::Dim;
use crate::runtime::{DType, EngineError, Signature, Tensor};

/// Most elements of an input that may be made part of a plan.
const MAX_VALUES: usize = 64;

/// What a plan is for: the shape of each input, and the values of those that are part of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlanKey {
    inputs: Vec<KeyInput>,
}

#[derive(Debug, Clone, PartialEq)]
enum KeyInput {
    Shape(Vec<u64>),
    Value(Tensor),
    /// Any shape the model allows: its open dimensions stay symbols.
    Open,
}

/// A model made ready.
pub(super) struct Plan {
    state: TypedSimpleState,
    /// Places of the inputs that are fed, in order.
    fed: Vec<usize>,
}

impl PlanKey {
    /// The key of a method whose inputs all have fixed shapes.
    pub(super) fn of_static(signature: &Signature) -> Option<Self> {
        let inputs = signature.inputs.iter().map(|spec| {
            let dims = spec.dims.as_ref()?.iter();
            let sizes = dims.map(|dim| match dim {
                Dim::Fixed(size) => Some(*size),
                _ => None,
            });
            Some(KeyInput::Shape(sizes.collect::<Option<Vec<_>>>()?))
        });
        Some(Self {
            inputs: inputs.collect::<Option<Vec<_>>>()?,
        })
    }

    /// The keys that plans for these inputs can have, the one to try first first.
    pub(super) fn candidates(inputs: &[Tensor], by_value: bool) -> Vec<Self> {
        let key = |values: bool| Self {
            inputs: inputs
                .iter()
                .map(|tensor| {
                    if values && can_be_value(tensor) {
                        KeyInput::Value(tensor.clone())
                    } else {
                        KeyInput::Shape(tensor.shape().to_vec())
                    }
                })
                .collect(),
        };
        if !inputs.iter().any(can_be_value) {
            return vec![key(false)];
        }
        let mut keys = vec![key(false), key(true)];
        if by_value {
            keys.reverse();
        }
        keys
    }

    /// The key of a plan that takes any shapes.
    pub(super) fn open(signature: &Signature) -> Self {
        Self {
            inputs: vec![KeyInput::Open; signature.inputs.len()],
        }
    }

    /// Whether a plan with this key takes these inputs.
    pub(super) fn fits(&self, inputs: &[Tensor]) -> bool {
        let pairs = self.inputs.iter().zip(inputs);
        self.inputs.len() == inputs.len()
            && pairs.into_iter().all(|(key, input)| match key {
                KeyInput::Shape(shape) => shape == input.shape(),
                KeyInput::Value(value) => value == input,
                KeyInput::Open => true,
            })
    }

    /// Whether values are part of the plan.
    pub(super) fn has_values(&self) -> bool {
        let is_value = |input: &KeyInput| matches!(input, KeyInput::Value(_));
        self.inputs.iter().any(is_value)
    }
}

fn can_be_value(tensor: &Tensor) -> bool {
    let exact = !tensor.dtype().is_float() && tensor.dtype() != DType::Uint8;
    tensor.len() <= MAX_VALUES && (exact || tensor.shape().is_empty())
}

impl Plan {
    /// Makes the model ready for what `key` says.
    pub(super) fn make(
        mut model: InferenceModel,
        signature: &Signature,
        key: &PlanKey,
        executor: &Executor,
    ) -> Result<Self, EngineError> {
        let failed = |error: tract_onnx::prelude::TractError| load_error(&chain(&error));
        let fed = guard::catch("preparing the model", || feed(&mut model, signature, key))?;
        let options = RunOptions {
            executor: match executor {
                Executor::SingleThread => None,
                several => Some(several.clone()),
            },
            ..RunOptions::default()
        };
        let state = guard::catch("planning", || {
            let plan = multithread_tract_scope(executor.clone(), || {
                let model = model.into_optimized()?;
                TypedSimplePlan::new_with_options(Arc::new(model), &options)
            });
            let plan = plan.map_err(failed)?;
            TypedSimpleState::new(&plan).map_err(failed)
        })?;
        Ok(Self { state, fed })
    }

    /// How many nodes a run evaluates.
    pub(super) fn nodes(&self) -> u64 {
        self.state.plan().order_without_consts().len() as u64
    }

    /// Runs on these inputs, those that are part of the plan included.
    pub(super) fn run(&mut self, inputs: &[Tensor]) -> Result<TVec<TValue>, EngineError> {
        let fed: TVec<TValue> = self
            .fed
            .iter()
            .map(|place| Ok(to_tract(&inputs[*place])?.into_tvalue()))
            .collect::<Result<_, EngineError>>()?;
        let state = &mut self.state;
        let outcome = guard::catch("running", || {
            let outcome: TractResult<TVec<TValue>> = state.run_plan_with_eval(
                fed,
                |context, state, node, values| -> TractResult<TVec<TValue>> {
                    guard::enter(node.id);
                    tract_onnx::tract_core::plan::eval(context, state, node, values)
                },
            );
            Ok(outcome)
        });
        let operator = || {
            let node = self.state.model().nodes().get(guard::entered()?)?;
            Some(format!("{} ({})", node.op().name(), node.name))
        };
        match outcome {
            Ok(Ok(outputs)) => Ok(outputs),
            Ok(Err(error)) => Err(EngineError::Run {
                engine: NAME.to_owned(),
                operator: operator(),
                reason: chain(&error),
            }),
            Err(EngineError::Run { engine, reason, .. }) => Err(EngineError::Run {
                engine,
                operator: operator(),
                reason,
            }),
            Err(other) => Err(other),
        }
    }
}

/// Gives each input of the model its shape or its value; answers which are still fed.
fn feed(
    model: &mut InferenceModel,
    signature: &Signature,
    key: &PlanKey,
) -> Result<Vec<usize>, EngineError> {
    let failed = |error: tract_onnx::prelude::TractError| load_error(&chain(&error));
    let outlets = model.inputs.clone();
    let names: Vec<String> = outlets
        .iter()
        .map(|outlet| model.nodes()[outlet.node].name.clone())
        .collect();
    let expected: Vec<&str> = signature
        .inputs
        .iter()
        .map(|spec| spec.name.as_str())
        .collect();
    if names != expected {
        return Err(load_error(&format!(
            "it sees the inputs {}, the file's header says {}",
            names.join(", "),
            expected.join(", ")
        )));
    }
    let mut fed = Vec::new();
    for (place, (outlet, spec)) in outlets.iter().zip(&signature.inputs).enumerate() {
        match &key.inputs[place] {
            KeyInput::Shape(sizes) => {
                let fact = InferenceFact::dt_shape(datum_type(spec.dtype)?, shape(sizes)?);
                model.set_outlet_fact(*outlet, fact).map_err(failed)?;
                fed.push(place);
            }
            KeyInput::Open => fed.push(place),
            KeyInput::Value(tensor) => {
                let value = Arc::new(to_tract(tensor)?);
                let fact = InferenceFact::from(to_tract(tensor)?);
                model.nodes_mut()[outlet.node].op = Box::new(Const::new(value).map_err(failed)?);
                model.set_outlet_fact(*outlet, fact).map_err(failed)?;
            }
        }
    }
    model.inputs = fed.iter().map(|place| outlets[*place]).collect();
    Ok(fed)
}
