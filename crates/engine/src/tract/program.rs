//! A session of a loaded ExecuTorch program or Core ML model, run by tract.
//!
//! The session makes a plan for the input shapes of each run and keeps it ([`Plans`]). If the method
//! has open sizes, the first run also makes a plan for all shapes; that of a large program is made
//! when a second shape comes. It is adopted if it gives the same outputs as the plan for the
//! current shapes.
//!
//! States belong to the session, not to a plan. Every run starts from the states of the last
//! successful run, until `reset_state` resets them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use half::{bf16, f16};
use tract_linalg::multithread::Executor;
use tract_onnx::prelude::{DatumType, IntoTValue, TValue, TVec};

use super::agreement::agree;
use super::session::{answer, executor, longest, placement};
use crate::frontends::portable::{
    InputShapes, Lowered, delegates, lower, missing, standalone, unsupported_reason,
};
use crate::graph::builder::InputSize;
use crate::graph::corrections;
use crate::graph::give;
use crate::graph::guard::{LibraryFailure, guarded};
use crate::graph::holdings::MemoryUse;
use crate::graph::overwrite::address;
use crate::graph::plans::{CachedPlan, Plans};
use crate::graph::runner::Runner;
use crate::graph::weights::ProgramWeights;
use crate::graph::{failed, unsupported};
use crate::tensor::{DType, Signature, Tensor, TensorSpec};
use crate::{EngineError, LoadRequest, Placement, Profile, Rounding, RunAnswer, Session};
use pkgtool_base::source::FileSource;
use pkgtool_model::executorch::body::{BodyValue, MethodBody, ProgramBody, data_files};
use pkgtool_model::{Dim, Dynamism, ModelInfo};

/// Part of tract's error about a node that its optimiser removed but still refers to.
const REMOVED_NODE_ERROR: &str = "Dummy op";

/// A loaded program.
pub(crate) struct ProgramSession {
    method: MethodBody,
    weights: ProgramWeights,
    signature: Signature,
    rounding: Rounding,
    executor: Executor,
    plans: Plans<Vec<Vec<u64>>, PlannedMethod>,
    /// States after the last successful run. A missing entry has its initial value.
    states: StateValues,
    /// Initial values of the states.
    initial: HashMap<usize, InitialState>,
    nodes: u64,
}

/// Values of states, by index.
type StateValues = HashMap<usize, TValue>;

struct PlannedMethod {
    runner: Runner,
    given: Vec<usize>,
    outputs: Vec<DType>,
    /// Indices of states, in the order of the graph's inputs and outputs.
    states: Vec<usize>,
    /// Whether the run may overwrite each state.
    overwritable: Vec<bool>,
}

impl CachedPlan for PlannedMethod {
    fn memory_use(&self) -> &MemoryUse {
        self.runner.memory_use()
    }
}

impl ProgramSession {
    /// Reads the program, rejects unsupported parts, and plans it if all its shapes are fixed.
    ///
    /// Reads the data files beside the program if it needs any.
    pub(crate) fn new(request: &LoadRequest, needs_data: bool) -> Result<Self, EngineError> {
        let fail = |reason: String| failed(&LibraryFailure::new(reason));
        let path = &request.model;
        let source = FileSource::open(path).map_err(|error| fail(error.to_string()))?;
        let body = ProgramBody::read(&source).map_err(|error| fail(error.to_string()))?;
        let name = &request.signature.method;
        let ProgramBody { methods, named } = body;
        let method = methods.into_iter().find(|method| method.name == *name);
        let mut method =
            method.ok_or_else(|| fail(format!("the program does not have the method `{name}`")))?;
        // Null inputs and outputs are not passed.
        let is_something = |value: &usize| method.values[*value] != BodyValue::Null;
        let something = |values: &[usize]| values.iter().copied().filter(is_something).collect();
        (method.inputs, method.outputs) = (something(&method.inputs), something(&method.outputs));
        let missing = missing(
            method.operators.iter().map(String::as_str),
            method.delegates.iter().map(|delegate| delegate.id.as_str()),
        );
        if !missing.is_empty() {
            let reason = unsupported_reason(&missing);
            return Err(unsupported(missing, &reason));
        }
        let unbounded = |value: &BodyValue| {
            let tensor = value.tensor();
            tensor.is_some_and(|tensor| tensor.dynamism == Dynamism::Unbounded)
        };
        if method.values.iter().any(unbounded) {
            let reason = "tensors without an upper bound are unsupported; ExecuTorch itself does not load them";
            return Err(unsupported(BTreeSet::new(), reason));
        }
        let mut weights = ProgramWeights::open(path, named).map_err(|failure| failed(&failure))?;
        let files = needs_data.then(|| data_files(path));
        weights
            .add(files.unwrap_or_default())
            .map_err(|failure| failed(&failure))?;
        Self::of(method, weights, request)
    }

    /// Reads a function of a Core ML model as a method, in the same way.
    pub(crate) fn of_core_ml(request: &LoadRequest, info: &ModelInfo) -> Result<Self, EngineError> {
        let (method, weights) = standalone::read(request, info)?;
        Self::of(method, weights, request)
    }

    /// Rejects delegates with unsupported operators, and plans the method if all its shapes are
    /// fixed.
    fn of(
        method: MethodBody,
        weights: ProgramWeights,
        request: &LoadRequest,
    ) -> Result<Self, EngineError> {
        let missing = delegates::first_unsupported(&method.delegates, &weights);
        if let Some((names, reason)) = missing.map_err(|failure| failed(&failure))? {
            return Err(unsupported(names, &reason));
        }
        let mut session = Self {
            plans: Plans::new(weights.size()),
            method,
            weights,
            signature: request.signature.clone(),
            rounding: request.options.rounding,
            executor: executor(request.options.threads).map_err(|failure| failed(&failure))?,
            states: HashMap::new(),
            initial: HashMap::new(),
            nodes: 0,
        };
        if let Some(shapes) = fixed_shapes(&session.signature) {
            session
                .prepare(&shapes)
                .map_err(|failure| failed(&failure))?;
        }
        Ok(session)
    }

    fn make(
        &mut self,
        shapes: &InputShapes,
        optimise: bool,
    ) -> Result<PlannedMethod, LibraryFailure> {
        let lower = || lower(&self.method, shapes, &self.weights, self.rounding);
        let Lowered {
            model,
            given,
            outputs,
            states,
        } = lower()?;
        let planned = Runner::new(
            &self.executor,
            optimise,
            || Ok(model),
            corrections::CORRECTIONS,
        );
        let runner = planned.or_else(|unplanned| {
            // tract's optimiser fuses a repeated tensor into a product, and fails if both operands
            // are repeated.
            let model = lower().map_err(|_| unplanned.failure.clone())?.model;
            let model = || corrections::repeated(model);
            let planned = Runner::new(&self.executor, optimise, model, corrections::CORRECTIONS);
            planned.map_err(|_| unplanned.failure)
        })?;
        for state in &states {
            let initial = || InitialState::of(&state.initial);
            self.initial.entry(state.value).or_insert_with(initial);
        }
        let first = given.len();
        let lent = (0..states.len()).map(|at| runner.overwrites(first + at));
        Ok(PlannedMethod {
            given,
            outputs,
            overwritable: lent.collect(),
            states: states.into_iter().map(|state| state.value).collect(),
            runner,
        })
    }

    /// Makes the plan for these shapes the last one, creating it if it is missing.
    fn prepare(&mut self, shapes: &[Vec<u64>]) -> Result<(), LibraryFailure> {
        if self.plans.find(|known| known == shapes) {
            return Ok(());
        }
        self.plans.make_room();
        let plan = self.make(&known_shapes(shapes), true)?;
        self.nodes = plan.runner.nodes();
        self.plans.keep(shapes.to_vec(), plan);
        Ok(())
    }

    fn run_any(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, LibraryFailure> {
        self.check_numbers(inputs)?;
        if let Some(plan) = self.plans.general_mut() {
            match plan.run(inputs, &self.signature, &mut self.states, &self.initial) {
                Ok((outputs, states)) => {
                    self.states.extend(states);
                    return Ok(outputs);
                }
                Err(failure) if failure.input => return Err(failure),
                Err(_) => self.plans.refuse_general(),
            }
        }
        let shapes: Vec<Vec<u64>> = inputs
            .iter()
            .map(|tensor| tensor.shape().to_vec())
            .collect();
        let before = self.plans.made();
        self.prepare(&shapes)?;
        let is_tried = self.plans.made() > before
            && self.plans.should_try_general()
            && fixed_shapes(&self.signature).is_none();
        // The extra reference keeps the run from overwriting these states.
        let held = is_tried.then(|| self.states.clone());
        let (outputs, states) = match self.run_last(inputs) {
            // tract's optimiser left a node behind that it cannot run.
            Err(failure) if failure.reason.contains(REMOVED_NODE_ERROR) => {
                self.plans.drop_last();
                let plan = self.make(&known_shapes(&shapes), false)?;
                self.plans.keep(shapes, plan);
                self.run_last(inputs)?
            }
            outcome => outcome?,
        };
        if let Some(held) = held {
            self.try_any_shape(inputs, &outputs, held);
        }
        self.states.extend(states);
        Ok(outputs)
    }

    fn run_last(&mut self, inputs: &[Tensor]) -> Result<ProgramResult, LibraryFailure> {
        let Some(plan) = self.plans.last_mut() else {
            return Err(LibraryFailure::new("no plan exists"));
        };
        plan.run(inputs, &self.signature, &mut self.states, &self.initial)
    }

    /// Adopts a plan for all shapes if it gives the expected outputs for the same inputs and
    /// states.
    fn try_any_shape(&mut self, inputs: &[Tensor], expected: &[Tensor], mut states: StateValues) {
        self.plans.make_room();
        let shapes = any_shapes(&self.signature, inputs);
        let tried = self.make(&shapes, true).and_then(|mut plan| {
            let (outputs, _) = plan.run(inputs, &self.signature, &mut states, &self.initial)?;
            Ok((plan, outputs))
        });
        match tried {
            Ok((plan, outputs)) if agree(&outputs, expected) => {
                self.nodes = plan.runner.nodes();
                self.plans.generalise(plan);
            }
            _ => self.plans.refuse_general(),
        }
    }

    /// Rejects numbers among the inputs that differ from those fixed at export.
    fn check_numbers(&self, inputs: &[Tensor]) -> Result<(), LibraryFailure> {
        let values = self.method.inputs.iter().zip(inputs);
        for ((&value, input), spec) in values.zip(&self.signature.inputs) {
            let fixed = match &self.method.values[value] {
                #[expect(clippy::cast_precision_loss, reason = "compared as the input is")]
                BodyValue::Int(value) => *value as f64,
                BodyValue::Double(value) => *value,
                BodyValue::Bool(value) => f64::from(u8::from(*value)),
                _ => continue,
            };
            let given = input.to_f64().next().unwrap_or(f64::NAN);
            if given.total_cmp(&fixed).is_ne() {
                return Err(LibraryFailure::new(format!(
                    "input `{}` is {given}, but the program was exported for the fixed value {fixed}",
                    spec.name
                )));
            }
        }
        Ok(())
    }
}

/// Outputs, and the states after the run.
type ProgramResult = (Vec<Tensor>, StateValues);

impl PlannedMethod {
    /// Runs the plan once.
    ///
    /// States that the run may overwrite are taken out of `states`. If the run fails, they are put
    /// back unchanged.
    fn run(
        &mut self,
        inputs: &[Tensor],
        signature: &Signature,
        states: &mut StateValues,
        initial: &HashMap<usize, InitialState>,
    ) -> Result<ProgramResult, LibraryFailure> {
        let mut values: TVec<TValue> = TVec::new();
        for &place in &self.given {
            values.push(give(&inputs[place])?.into_tvalue());
        }
        for place in &self.states {
            if !states.contains_key(place) {
                let Some(initial) = initial.get(place) else {
                    return Err(LibraryFailure::new("a state has no initial value"));
                };
                states.insert(*place, initial.value()?);
            }
        }
        let mut lent = Vec::new();
        for (place, is_lent) in self.states.iter().zip(&self.overwritable) {
            let address = is_lent.then(|| address(&states[place])).flatten();
            values.push(states[place].clone());
            if let Some(address) = address {
                states.remove(place);
                lent.push((*place, address));
            }
        }
        let count = self.outputs.len() + self.states.len();
        let mut given = match self.runner.run(values, count) {
            Ok(given) => given,
            Err(failure) => {
                self.restore_states(&lent, states, TVec::new())?;
                return Err(failure);
            }
        };
        let kept: TVec<TValue> = given.drain(self.outputs.len()..).collect();
        let promised = self.outputs.iter().zip(&signature.outputs);
        let outputs = given.into_iter().zip(promised);
        match outputs
            .map(|(value, (dtype, spec))| to_output(value, *dtype, spec))
            .collect()
        {
            Ok(outputs) => {
                self.runner.commit_writes();
                Ok((outputs, self.states.iter().copied().zip(kept).collect()))
            }
            Err(failure) => {
                self.restore_states(&lent, states, kept)?;
                Err(failure)
            }
        }
    }

    /// Puts the states lent to a failed run back.
    fn restore_states(
        &mut self,
        lent: &[(usize, usize)],
        states: &mut StateValues,
        outputs: TVec<TValue>,
    ) -> Result<(), LibraryFailure> {
        let mut found = self.runner.undo_writes(outputs)?;
        for (place, address) in lent {
            let Some(state) = found.remove(address) else {
                states.clear();
                let reason = "a failed run lost the program's states; they are reset";
                return Err(LibraryFailure::new(reason));
            };
            states.insert(*place, state);
        }
        Ok(())
    }
}

/// Returns the part of a program from which a node of a graph was made, and its operator. The names
/// are those of [`crate::graph::builder::Builder`]: `aten::add.out (instruction 3) #12`, or with the
/// operator in a delegate, `XnnpackBackend (instruction 3) XNNConv2d 7 #12`.
fn origin(node: &str) -> Option<(String, String)> {
    // The library may drop the number, and adds suffixes.
    let part = node.split(" #").next()?.split(" .").next()?.trim_end();
    if part == node && !part.contains(" (instruction ") {
        return None;
    }
    let operator = match part.rsplit_once(' ') {
        Some((before, number)) if number.parse::<u64>().is_ok() => before.rsplit(' ').next(),
        _ => part.split(" (").next(),
    };
    Some((part.to_owned(), operator?.to_owned()))
}

/// The initial value of a state.
enum InitialState {
    /// Zeros, allocated when they are needed.
    Zeros(DatumType, Vec<usize>),
    Values(TValue),
}

impl InitialState {
    fn of(tensor: &Arc<tract_onnx::prelude::Tensor>) -> Self {
        let bytes = tensor.as_plain_ram().map(|plain| plain.as_bytes());
        if bytes.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
            Self::Zeros(tensor.datum_type(), tensor.shape().to_vec())
        } else {
            Self::Values(Arc::clone(tensor).into_tvalue())
        }
    }

    fn value(&self) -> Result<TValue, LibraryFailure> {
        match self {
            Self::Zeros(dtype, shape) => guarded(|| {
                let zeros = tract_onnx::prelude::Tensor::zero_dt(*dtype, shape)?;
                Ok(zeros.into_tvalue())
            }),
            Self::Values(value) => Ok(value.clone()),
        }
    }
}

/// Converts an output to the tensor declared by `spec`.
fn to_output(value: TValue, dtype: DType, spec: &TensorSpec) -> Result<Tensor, LibraryFailure> {
    if !matches!(dtype, DType::Float16 | DType::Bfloat16) || dtype != spec.dtype {
        return crate::graph::elements::from_tract(value, spec);
    }
    let shape: Vec<u64> = value.shape().iter().map(|size| *size as u64).collect();
    let bytes = guarded(|| {
        let view = value.try_as_plain_ram()?;
        let floats = view.as_slice::<f32>()?.iter();
        Ok(match dtype {
            DType::Float16 => floats
                .flat_map(|x| f16::from_f32(*x).to_le_bytes())
                .collect(),
            _ => floats
                .flat_map(|x| bf16::from_f32(*x).to_le_bytes())
                .collect::<Vec<u8>>(),
        })
    })?;
    Tensor::new(dtype, shape, bytes)
        .map_err(|error| LibraryFailure::new(format!("invalid output `{}`: {error}", spec.name)))
}

fn known_shapes(shapes: &[Vec<u64>]) -> InputShapes {
    let known = |shape: &Vec<u64>| shape.iter().copied().map(InputSize::Known).collect();
    shapes.iter().map(known).collect()
}

/// Returns the shapes of all inputs if the file fixes them.
fn fixed_shapes(signature: &Signature) -> Option<Vec<Vec<u64>>> {
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => Some(*size),
        _ => None,
    };
    let shape = |spec: &TensorSpec| spec.dims.as_ref()?.iter().map(size).collect();
    signature.inputs.iter().map(shape).collect()
}

/// Returns shapes in which every variable size is symbolic. Sizes with the same bound that are
/// equal now share a symbol.
fn any_shapes(signature: &Signature, inputs: &[Tensor]) -> InputShapes {
    let inputs = signature.inputs.iter().zip(inputs);
    inputs
        .map(|(spec, input)| {
            let dims = spec.dims.iter().flatten().zip(input.shape());
            dims.map(|(dim, size)| match dim {
                Dim::Fixed(size) => InputSize::Known(*size),
                Dim::Maybe { bound, .. } if *bound > 1 => InputSize::Any {
                    name: format!("n{bound}x{size}"),
                    most: *bound,
                },
                Dim::Dynamic {
                    bound: Some(bound), ..
                } => InputSize::Any {
                    name: format!("n{bound}x{size}"),
                    most: *bound,
                },
                _ => InputSize::Known(*size),
            })
            .collect()
        })
        .collect()
}

impl Session for ProgramSession {
    fn run(&mut self, inputs: &[Tensor]) -> Result<RunAnswer, EngineError> {
        let expected = self.signature.inputs.len();
        answer(inputs, expected, |inputs| self.run_any(inputs))
    }

    fn reset_state(&mut self) -> Result<(), EngineError> {
        self.states.clear();
        Ok(())
    }

    fn placement(&mut self) -> Placement {
        placement(self.nodes)
    }

    fn begin_profile(&mut self) {
        let plans = self.plans.all_mut();
        plans.for_each(|plan| plan.runner.begin_recording());
    }

    fn end_profile(&mut self) -> Option<Profile> {
        let plans = self.plans.all_mut();
        let profile = longest(plans.filter_map(|plan| plan.runner.end_recording()))?;
        Some(profile.with_origins(origin))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::LoadOptions;
    use pkgtool_model as model;

    fn largest(dim: &Dim) -> u64 {
        match dim {
            Dim::Fixed(size) | Dim::Maybe { bound: size, .. } => *size,
            Dim::Dynamic { bound, .. } => bound.unwrap_or(1),
        }
    }

    #[test]
    fn nodes_name_their_part_of_the_program() {
        for (node, operator) in [
            ("aten::add.out (instruction 3) #12", "aten::add.out"),
            (
                "XnnpackBackend (instruction 3) XNNConv2d 7 #12",
                "XNNConv2d",
            ),
            (
                "XnnpackBackend (instruction 3) XNNConv2d 7 #12.pad",
                "XNNConv2d",
            ),
            ("XnnpackBackend (instruction 1) XNNConv2d 2", "XNNConv2d"),
            ("XnnpackBackend (instruction 1) XNNConv2d 2 ", "XNNConv2d"),
            ("XnnpackBackend (instruction 1) XNNConv2d 2 .1", "XNNConv2d"),
            ("outputs #4", "outputs"),
        ] {
            let found = origin(node).map(|(_, operator)| operator);
            assert_eq!(found.as_deref(), Some(operator), "{node}");
        }
        assert_eq!(origin("input_0"), None);
    }

    #[test]
    fn caches_are_lent_to_a_run() {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/programs");
        for (name, lent) in [
            ("cache_of_llama", 2),
            ("cache_of_llama_prompt", 2),
            ("cache_in_place", 0),
            ("counter", 0),
        ] {
            let model = programs.join(name).with_extension("pte");
            let (info, _) = model::open(&model).expect("fixtures can be read");
            let method = info.method("forward").expect("the method is there");
            let request = LoadRequest {
                signature: Signature::of(method, None).expect("all values are tensors"),
                model,
                options: LoadOptions::default(),
            };
            let mut session = ProgramSession::new(&request, false).expect("it loads");
            let inputs = session.signature.inputs.iter();
            let sizes = inputs.map(|spec| spec.dims.iter().flatten().map(largest).collect());
            let shapes: Vec<Vec<u64>> = sizes.collect();
            session.prepare(&shapes).expect("it can be planned");
            let plan = session.plans.last_mut().expect("it was made");
            let found = plan.overwritable.iter().filter(|lent| **lent).count();
            assert_eq!(found, lent, "{name}");
        }
    }
}
