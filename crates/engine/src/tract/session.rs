//! A session of the tract engine: a loaded model and its plans.
//!
//! A plan is made for the input shapes of a run and cached for later runs of these shapes
//! ([`Plans`]). If the model has open sizes, the first run also makes a plan for all shapes; that of
//! a large model is made when a second shape comes. It is used from then on if it computes the same
//! answer. If the library needs the values of small integer inputs for planning (shapes, axes,
//! pads), they become part of the plan.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rayon::{ThreadPool, ThreadPoolBuilder};
use tract_linalg::multithread::Executor;

use super::agreement::agree;
use super::plan::{Plan, PlanInputs};
use crate::frontends::onnx::source::ModelSource;
use crate::graph::guard::{LibraryFailure, WORKERS};
use crate::graph::plans::Plans;
use crate::graph::watch::WRONG_RESULT;
use crate::graph::{NAME, failed, run_failed};
use crate::tensor::{Signature, Tensor, byte_size};
use crate::{ByteSums, EngineError, LoadOptions, Placement, Profile, RunAnswer, Session, Share};
use pkgtool_model::Dim;

thread_local! {
    /// The thread pool that this thread belongs to.
    static OWN_POOL: RefCell<Option<Arc<ThreadPool>>> = const { RefCell::new(None) };
}

/// Maximum size of the first run's inputs and outputs that are kept, in bytes.
const MAX_KEPT_RUN_BYTES: usize = 8 << 20;

/// Inputs with more elements than this are data, not shapes or axes.
const MAX_CONSTANT_ELEMENTS: usize = 64;

/// A loaded model.
pub(super) struct TractSession {
    source: ModelSource,
    signature: Signature,
    executor: Executor,
    constants: ConstantInputs,
    plans: Plans<PlanKey, Plan>,
    /// Inputs and outputs of the first run, to check the plan for all shapes.
    first: Option<[Vec<Tensor>; 2]>,
    nodes: u64,
    /// How products of bytes are added up, if the model has any.
    pub(super) byte_sums: Option<ByteSums>,
}

/// The inputs that a plan was made for.
#[derive(PartialEq, Eq)]
struct PlanKey {
    shapes: Vec<Vec<u64>>,
    /// The values that are part of the plan.
    values: Vec<Option<Vec<u8>>>,
}

impl PlanKey {
    /// Returns `true` if this is the key of these inputs, with these constants.
    fn fits(&self, inputs: &[Tensor], constants: ConstantInputs) -> bool {
        let keys = self.shapes.iter().zip(&self.values);
        self.shapes.len() == inputs.len()
            && inputs.iter().zip(keys).all(|(tensor, (shape, value))| {
                tensor.shape() == shape
                    && value.is_some() == is_constant(tensor, constants)
                    && value.as_deref().is_none_or(|value| value == tensor.bytes())
            })
    }
}

/// The inputs whose values become part of a plan; each stage includes the previous one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ConstantInputs {
    None,
    /// Small integers and booleans with at most one dimension: shapes, axes, pads, flags.
    Vectors,
    /// All small tensors with at most one dimension: scales, fill values.
    Scales,
    /// Small integers and booleans of any shape as well.
    All,
}

impl TractSession {
    /// Creates the session, and the plan if only one is possible.
    pub(super) fn new(
        mut source: ModelSource,
        signature: Signature,
        options: &LoadOptions,
    ) -> Result<Self, EngineError> {
        check_inputs(&mut source, &signature).map_err(|failure| failed(&failure))?;
        let mut session = Self {
            plans: Plans::new(source.bytes()),
            source,
            signature,
            executor: executor(options.threads).map_err(|failure| failed(&failure))?,
            constants: ConstantInputs::None,
            first: None,
            nodes: 0,
            byte_sums: None,
        };
        if let Some(shapes) = fixed_shapes(&session.signature) {
            match session.plan_shapes(&shapes) {
                Ok(()) => session.source.forget(),
                // Planning may need values, which the first run knows. A wrong answer would stay
                // wrong, though.
                Err(failure)
                    if session.may_need_values() && !failure.reason.contains(WRONG_RESULT) =>
                {
                    session.constants = ConstantInputs::Vectors;
                }
                Err(failure) => return Err(failed(&failure)),
            }
        }
        Ok(session)
    }

    fn may_need_values(&self) -> bool {
        self.signature.inputs.iter().any(|spec| {
            let dims = spec.dims.iter().flatten();
            let sizes = dims.map(|dim| match dim {
                Dim::Fixed(size) => *size,
                _ => 1,
            });
            let is_vector = spec.dims.as_ref().is_some_and(|dims| dims.len() <= 1);
            let elements = sizes.fold(1, u64::saturating_mul);
            (is_vector || !spec.dtype.is_float()) && elements <= MAX_CONSTANT_ELEMENTS as u64
        })
    }

    fn plan_shapes(&mut self, shapes: &[Vec<u64>]) -> Result<(), LibraryFailure> {
        let plan = self.make(&PlanInputs::Shapes(shapes))?;
        let key = PlanKey {
            shapes: shapes.to_vec(),
            values: vec![None; shapes.len()],
        };
        self.keep(key, plan);
        Ok(())
    }

    fn make(&mut self, inputs: &PlanInputs<'_>) -> Result<Plan, LibraryFailure> {
        let mut planned = |optimise| {
            let graph = self.source.graph_for_plan()?;
            Plan::new(graph, &self.signature, inputs, &self.executor, optimise)
        };
        let plan = planned(true).or_else(|unplanned| {
            if unplanned.is_optimiser_error
                && let Ok(plan) = planned(false)
            {
                return Ok(plan);
            }
            Err(unplanned.failure)
        });
        plan.map_err(|failure| self.named(failure))
    }

    fn keep(&mut self, key: PlanKey, plan: Plan) {
        self.nodes = plan.nodes();
        self.plans.keep(key, plan);
    }

    /// Puts the plan for these inputs into use, and makes it if necessary.
    fn prepare(&mut self, inputs: &[Tensor], constant: &[bool]) -> Result<(), LibraryFailure> {
        let key = PlanKey {
            shapes: inputs
                .iter()
                .map(|tensor| tensor.shape().to_vec())
                .collect(),
            values: inputs
                .iter()
                .zip(constant)
                .map(|(tensor, constant)| constant.then(|| tensor.bytes().to_vec()))
                .collect(),
        };
        if self.plans.find(|known| *known == key) {
            return Ok(());
        }
        self.plans.make_room();
        let plan = self.make(&PlanInputs::Values {
            tensors: inputs,
            constant,
        })?;
        self.keep(key, plan);
        Ok(())
    }

    fn run_last(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, LibraryFailure> {
        let plan = self.plans.last_mut().expect("it was just prepared");
        self.nodes = plan.nodes();
        plan.run(inputs, &self.signature)
            .map_err(|failure| self.named(failure))
    }

    /// Runs with as few constant inputs as possible. If planning needs some, the next run starts
    /// with them. If only this run needs them, it does not.
    fn run_concrete(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, LibraryFailure> {
        // Fast path for most runs: the same shapes as before, found without building a key.
        let constants = self.constants;
        if self.plans.is_last(|key| key.fits(inputs, constants))
            && let Ok(outputs) = self.run_last(inputs)
        {
            return Ok(outputs);
        }
        let mut last = None;
        let mut tried = None;
        let mut planned = false;
        let from = self.constants;
        let stages = [
            ConstantInputs::None,
            ConstantInputs::Vectors,
            ConstantInputs::Scales,
            ConstantInputs::All,
        ];
        for stage in stages.into_iter().filter(|stage| *stage >= from) {
            let constant = inputs.iter().map(|tensor| is_constant(tensor, stage));
            let constant: Vec<bool> = constant.collect();
            if tried.as_ref() == Some(&constant) {
                continue;
            }
            let result = self.prepare(inputs, &constant).and_then(|()| {
                if !planned {
                    self.constants = stage;
                }
                planned = true;
                self.run_last(inputs)
            });
            match result {
                Ok(outputs) => return Ok(outputs),
                // As a constant the value would be computed just as wrongly, but unchecked.
                Err(failure) if failure.reason.contains(WRONG_RESULT) => return Err(failure),
                // The first failure that names an operator is the most useful one; later ones are
                // about the retry.
                Err(failure) => {
                    if last
                        .as_ref()
                        .is_none_or(|known: &LibraryFailure| known.operator.is_none())
                    {
                        last = Some(failure);
                    }
                }
            }
            tried = Some(constant);
        }
        if !planned {
            self.constants = from;
        }
        Err(last.unwrap_or_else(|| LibraryFailure::new("no plan was attempted")))
    }

    fn run_any(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, LibraryFailure> {
        if let Some(outputs) = self.run_general(inputs) {
            return Ok(outputs);
        }
        let before = self.plans.made();
        let outputs = self.run_concrete(inputs)?;
        let is_new = self.plans.made() > before;
        if is_new
            && self.constants == ConstantInputs::None
            && fixed_shapes(&self.signature).is_none()
        {
            if self.plans.should_try_general() {
                self.try_general(inputs, &outputs);
            } else {
                self.keep_first(inputs, &outputs);
            }
        }
        Ok(outputs)
    }

    /// Keeps the first run, unless it is large.
    fn keep_first(&mut self, inputs: &[Tensor], outputs: &[Tensor]) {
        let bytes = inputs.iter().chain(outputs).map(|it| it.bytes().len());
        if self.plans.made() == 1 && bytes.sum::<usize>() <= MAX_KEPT_RUN_BYTES {
            self.first = Some([inputs, outputs].map(<[Tensor]>::to_vec));
        }
    }

    /// Runs the plan for all shapes. `None` if it does not exist or fails.
    fn run_general(&mut self, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
        let is_other = |of: &[Tensor]| {
            let mut pairs = inputs.iter().zip(of);
            pairs.any(|(input, of)| input.shape() != of.shape())
        };
        if let Some([of, outputs]) = self.first.take_if(|[of, _]| is_other(of)) {
            self.try_general(&of, &outputs);
        }
        let plan = self.plans.general_mut()?;
        let outputs = plan.run(inputs, &self.signature);
        if outputs.is_err() {
            self.plans.refuse_general();
        }
        outputs.ok()
    }

    /// Puts a plan for all shapes into use, if its answer agrees with that of a plan for these
    /// shapes.
    fn try_general(&mut self, inputs: &[Tensor], expected: &[Tensor]) {
        self.plans.make_room();
        let tried = self.make(&PlanInputs::Symbols).and_then(|mut plan| {
            let outputs = plan.run(inputs, &self.signature)?;
            Ok((plan, outputs))
        });
        match tried {
            Ok((plan, outputs)) if agree(&outputs, expected) => {
                self.nodes = plan.nodes();
                self.plans.generalise(plan);
                self.source.forget();
            }
            _ => self.plans.refuse_general(),
        }
    }

    /// Names the model's node and operator. The run or the library knows only the plan's name of
    /// the node.
    fn named(&self, mut failure: LibraryFailure) -> LibraryFailure {
        // An error about inputs may name an operator of this crate.
        if failure.input {
            let origin = failure
                .node
                .take()
                .and_then(|node| self.source.origin(&node));
            failure.operator = origin.map(|(_, operator)| operator).or(failure.operator);
            return failure;
        }
        let Some(node) = failure.operator.take().or(failure.node.take()) else {
            return failure;
        };
        let (name, operator) = match self.source.origin(&node) {
            // Suffixes after a dot name parts of the node.
            Some((name, operator)) if is_part(&node, &name) => (name, operator),
            Some((_, operator)) => (node, operator),
            None => (node.clone(), node),
        };
        failure.reason = format!("node `{name}`: {}", failure.reason);
        failure.operator = Some(operator);
        failure
    }
}

impl Session for TractSession {
    fn run(&mut self, inputs: &[Tensor]) -> Result<RunAnswer, EngineError> {
        let expected = self.signature.inputs.len();
        answer(inputs, expected, |inputs| self.run_any(inputs))
    }

    fn placement(&mut self) -> Placement {
        Placement {
            byte_sums: self.byte_sums,
            ..placement(self.nodes)
        }
    }

    fn begin_profile(&mut self) {
        let plans = self.plans.all_mut();
        plans.for_each(|plan| plan.runner_mut().begin_recording());
    }

    fn end_profile(&mut self) -> Option<Profile> {
        let plans = self.plans.all_mut();
        let profile = longest(plans.filter_map(|plan| plan.runner_mut().end_recording()))?;
        Some(profile.with_origins(|node| {
            let (name, operator) = self.source.origin(node)?;
            let name = if is_part(node, &name) {
                name
            } else {
                node.to_owned()
            };
            Some((name, operator))
        }))
    }
}

/// Returns the profile with most runs. Runs after the first ones use the same plan.
pub(super) fn longest(profiles: impl Iterator<Item = Profile>) -> Option<Profile> {
    profiles.max_by_key(|profile| profile.runs.len())
}

/// Returns `true` if a node of a plan is a part of a node of the model, by their names.
fn is_part(node: &str, of: &str) -> bool {
    node.strip_prefix(of)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Runs `run` and measures it, for a model with this many inputs.
pub(super) fn answer(
    inputs: &[Tensor],
    expected: usize,
    run: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>, LibraryFailure>,
) -> Result<RunAnswer, EngineError> {
    if inputs.len() != expected {
        let reason = format!("expected {expected} inputs, got {}", inputs.len());
        return Err(run_failed(&LibraryFailure::new(reason)));
    }
    let start = Instant::now();
    let outputs = run(inputs).map_err(|failure| run_failed(&failure))?;
    Ok(RunAnswer {
        outputs,
        time: start.elapsed(),
    })
}

/// Returns the placement: all nodes run on the CPU.
pub(super) fn placement(nodes: u64) -> Placement {
    Placement {
        shares: vec![Share {
            provider: NAME.to_owned(),
            nodes,
            node_share: 1.0,
            time_share: 1.0,
        }],
        ..Placement::default()
    }
}

fn is_constant(tensor: &Tensor, constants: ConstantInputs) -> bool {
    let is_vector = tensor.shape().len() <= 1;
    let is_float = tensor.dtype().is_float();
    let chosen = match constants {
        ConstantInputs::None => false,
        ConstantInputs::Vectors => is_vector && !is_float,
        ConstantInputs::Scales => is_vector,
        ConstantInputs::All => is_vector || !is_float,
    };
    chosen && tensor.len() <= MAX_CONSTANT_ELEMENTS
}

/// Returns the shapes of all inputs, if the file fixes them.
fn fixed_shapes(signature: &Signature) -> Option<Vec<Vec<u64>>> {
    let shape = |dims: &Vec<Dim>| {
        let sizes = dims.iter().map(|dim| match dim {
            Dim::Fixed(size) => Some(*size),
            _ => None,
        });
        sizes.collect::<Option<Vec<u64>>>()
    };
    let inputs = signature.inputs.iter();
    inputs
        .map(|spec| shape(spec.dims.as_ref()?))
        .collect::<Option<Vec<_>>>()
}

/// Checks that the library's graph has the inputs of the signature, in its order, with possible
/// sizes.
fn check_inputs(source: &mut ModelSource, signature: &Signature) -> Result<(), LibraryFailure> {
    let graph = source.graph()?;
    let names = graph
        .inputs
        .iter()
        .map(|outlet| &graph.nodes[outlet.node].name);
    let expected = signature.inputs.iter().map(|spec| &spec.name);
    if !names.clone().eq(expected.clone()) {
        let list = |names: Vec<&String>| {
            let quoted = names.into_iter().map(|name| format!("`{name}`"));
            quoted.collect::<Vec<_>>().join(", ")
        };
        return Err(LibraryFailure::new(format!(
            "the library finds the inputs {}, but the file's header has {}",
            list(names.collect()),
            list(expected.collect())
        )));
    }
    if graph.outputs.len() != signature.outputs.len() {
        return Err(LibraryFailure::new(
            "the library finds other outputs than the file's header",
        ));
    }
    for spec in signature.inputs.iter().chain(&signature.outputs) {
        let sizes = spec.dims.iter().flatten().filter_map(|dim| match dim {
            Dim::Fixed(size) => Some(*size),
            _ => None,
        });
        byte_size(spec.dtype, &sizes.collect::<Vec<_>>())
            .map_err(|error| LibraryFailure::new(format!("`{}`: {error}", spec.name)))?;
    }
    Ok(())
}

/// Creates the threads for runs: one per core unless a number is given.
pub(super) fn executor(threads: Option<usize>) -> Result<Executor, LibraryFailure> {
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, Into::into));
    if threads <= 1 {
        return Ok(Executor::SingleThread);
    }
    if let Some(pool) = OWN_POOL.with_borrow(Clone::clone)
        && pool.current_num_threads() == threads
    {
        return Ok(Executor::MultiThread(pool));
    }
    crate::graph::guard::guarded(|| {
        let named = |at| format!("{WORKERS}-{at}");
        let pool = || {
            ThreadPoolBuilder::new()
                .thread_name(named)
                .num_threads(threads)
        };
        // Runs inside the pool. From outside, each operator would be handed over and awaited.
        if let Ok(own) = pool().use_current_thread().build() {
            let own = Arc::new(own);
            OWN_POOL.set(Some(Arc::clone(&own)));
            return Ok(Executor::MultiThread(own));
        }
        Ok(Executor::MultiThread(Arc::new(pool().build()?)))
    })
}
