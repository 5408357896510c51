//! The tract engine: pure Rust, in every build, for ONNX models.
//!
//! Invariant: whatever tract does with a model, the caller gets an error that names the operator. A
//! model with an operator that tract has no code for, or is known to compute wrongly, is refused
//! before tract builds anything. Knows nothing of packages.

mod convert;
mod guard;
mod operators;
mod plan;
mod slim;

use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

use tract_onnx::Onnx;
use tract_onnx::prelude::{Framework, InferenceModel};
use tract_onnx::tract_core::tract_linalg::multithread::Executor;

use super::agreement::Comparison;
use super::{
    Answer, DType, Engine, EngineError, LoadOptions, LoadRequest, Placement, Provider, Session,
    Share, Signature, Tensor,
};
use plan::{Plan, PlanKey};

/// The engine's name.
const NAME: &str = "tract";

/// Plans a session keeps: one for each combination of input shapes (and of the values of inputs
/// that are part of a plan).
const MAX_PLANS: usize = 8;

/// After so many plans for single shapes a plan for all of them is tried: what grows with each call
/// (a cache of keys and values) would need a new plan each time.
const SHAPES_BEFORE_SYMBOLS: u32 = 4;

/// How far apart the outputs of two plans may be, relative to the largest.
const SAME: f64 = 1e-3;

/// The engine.
#[derive(Debug)]
pub struct Tract;

/// A loaded model, and the plans made for the shapes it met.
struct TractSession {
    signature: Signature,
    /// The model as read; `None` once the only plan it can have is made.
    model: Option<InferenceModel>,
    /// The most recently used first.
    plans: VecDeque<(PlanKey, Plan)>,
    executor: Executor,
    nodes: u64,
    /// Whether inputs had to be made part of a plan before: then this is tried first.
    by_value: bool,
    /// Plans made so far.
    made: u32,
    /// The plan that takes any shapes, once it was made and gave what another plan gives.
    open: Option<Plan>,
}

impl Engine for Tract {
    fn name(&self) -> &'static str {
        NAME
    }

    fn load(&self, request: &LoadRequest) -> Result<Box<dyn Session>, EngineError> {
        check_options(&request.options)?;
        let model = guard::catch("reading the model", || read(&request.model))?;
        let mut session = TractSession {
            signature: request.signature.clone(),
            model: Some(model),
            plans: VecDeque::new(),
            executor: executor(request.options.threads)?,
            nodes: 0,
            by_value: false,
            made: 0,
            open: None,
        };
        session.plan_static()?;
        Ok(Box::new(session))
    }
}

fn check_options(options: &LoadOptions) -> Result<(), EngineError> {
    if options.provider == Provider::Cpu {
        return Ok(());
    }
    Err(EngineError::Unavailable {
        what: format!("the {} provider", options.provider),
        reason: "tract computes on the CPU only".to_owned(),
        help: "choose the ort engine for it".to_owned(),
    })
}

/// Reads the model without its weights, checks it, and lets tract build its graph, for which the
/// weights come straight from the file.
fn read(path: &Path) -> Result<InferenceModel, EngineError> {
    let slim = slim::read(path).map_err(|error| load_error(&error.to_string()))?;
    let onnx = tract_onnx::onnx();
    let read_proto = |onnx: &Onnx| onnx.proto_model_for_read(&mut &slim[..]);
    let proto = read_proto(&onnx).map_err(|error| load_error(&chain(&error)))?;
    operators::check(&proto, &onnx.op_register)?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let Some(directory) = directory.to_str() else {
        return Err(load_error("its folder's name is not UTF-8; rename it"));
    };
    let parsed = onnx
        .parse(&proto, Some(directory))
        .map_err(|error| load_error(&chain(&error)))?;
    if !parsed.unresolved_inputs.is_empty() {
        let names = parsed.unresolved_inputs.join("`, `");
        return Err(load_error(&format!(
            "nothing in the graph gives `{names}`, which its nodes take"
        )));
    }
    Ok(parsed.model)
}

fn executor(threads: Option<usize>) -> Result<Executor, EngineError> {
    let available = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match threads.unwrap_or_else(available) {
        0 | 1 => Ok(Executor::SingleThread),
        several => guard::catch("starting threads", || Ok(Executor::multithread(several))),
    }
}

impl TractSession {
    /// Plans at load what can be planned then: a model whose inputs all have fixed shapes.
    fn plan_static(&mut self) -> Result<(), EngineError> {
        let Some(key) = PlanKey::of_static(&self.signature) else {
            return Ok(());
        };
        // Without small integer inputs there is no second way to plan, so the model need not
        // outlive the plan.
        let model = if self
            .signature
            .inputs
            .iter()
            .all(|spec| spec.dtype.is_float())
        {
            self.model.take()
        } else {
            self.model.clone()
        };
        let Some(model) = model else { return Ok(()) };
        match Plan::make(model, &self.signature, &key, &self.executor) {
            Ok(plan) => self.keep(key, plan),
            // Perhaps it needs the inputs' values, which are not known yet.
            Err(_) if self.model.is_some() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn keep(&mut self, key: PlanKey, plan: Plan) {
        self.nodes = plan.nodes();
        self.made += 1;
        self.plans.truncate(MAX_PLANS - 1);
        self.plans.push_front((key, plan));
    }

    /// The plan for these inputs, made if there is none.
    fn plan(&mut self, inputs: &[Tensor]) -> Result<&mut Plan, EngineError> {
        let fits = self.plans.front().is_some_and(|(key, _)| key.fits(inputs));
        if !fits && self.find_plan(inputs)?.is_none() && self.open.is_some() {
            return self.open.as_mut().ok_or_else(no_plan);
        }
        let plan = self.plans.front_mut().map(|(_, plan)| plan);
        plan.ok_or_else(no_plan)
    }

    /// Brings the plan for these inputs to the front; `None` if the open plan is to be used.
    fn find_plan(&mut self, inputs: &[Tensor]) -> Result<Option<()>, EngineError> {
        let keys = PlanKey::candidates(inputs, self.by_value);
        let known = keys.iter().find_map(|key| {
            let same = |(known, _): &(PlanKey, Plan)| known == key;
            self.plans.iter().position(same)
        });
        if let Some(plan) = known.and_then(|place| self.plans.remove(place)) {
            self.plans.push_front(plan);
            return Ok(Some(()));
        }
        if self.open.is_some() {
            return Ok(None);
        }
        self.make_plan(keys)?;
        if self.made == SHAPES_BEFORE_SYMBOLS && !self.by_value {
            self.open = self.open_plan(inputs);
        }
        Ok(Some(()))
    }

    /// A plan with symbols, if tract can make one and it gives for these inputs what the plan for
    /// their shapes gives. Failing is no error: plans for single shapes go on.
    fn open_plan(&mut self, inputs: &[Tensor]) -> Option<Plan> {
        let model = self.model.clone()?;
        let key = PlanKey::open(&self.signature);
        let mut open = Plan::make(model, &self.signature, &key, &self.executor).ok()?;
        let (_, exact) = self.plans.front_mut()?;
        let (open_outputs, outputs) = (open.run(inputs).ok()?, exact.run(inputs).ok()?);
        let specs = self.signature.outputs.iter();
        for (spec, (one, other)) in specs.zip(open_outputs.into_iter().zip(outputs)) {
            let one = convert::from_tract(one, spec).ok()?;
            let other = convert::from_tract(other, spec).ok()?;
            let mut comparison = Comparison::default();
            comparison.add(&other, &one).ok()?;
            if comparison.agreement().max_rel > SAME {
                return None;
            }
        }
        Some(open)
    }

    /// Tries the keys in turn; if none works, the first one's error tells most.
    fn make_plan(&mut self, keys: Vec<PlanKey>) -> Result<(), EngineError> {
        let mut first = None;
        for key in keys {
            let Some(model) = self.model.clone() else {
                break;
            };
            match Plan::make(model, &self.signature, &key, &self.executor) {
                Ok(plan) => {
                    self.by_value = key.has_values();
                    self.keep(key, plan);
                    return Ok(());
                }
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        Err(first.unwrap_or_else(no_plan))
    }
}

impl Session for TractSession {
    fn run(&mut self, inputs: &[Tensor]) -> Result<Answer, EngineError> {
        // Making a plan for new shapes is part of the run that needs it.
        let start = Instant::now();
        let plan = self.plan(inputs)?;
        let outputs = plan.run(inputs)?;
        let specs = self.signature.outputs.iter();
        let outputs = specs
            .zip(outputs)
            .map(|(spec, value)| convert::from_tract(value, spec))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Answer {
            outputs,
            time: start.elapsed(),
        })
    }

    fn placement(&mut self) -> Placement {
        Placement {
            shares: vec![Share {
                provider: NAME.to_owned(),
                nodes: self.nodes,
                node_share: 1.0,
                time_share: 1.0,
            }],
        }
    }
}

fn no_plan() -> EngineError {
    load_error("there is no plan for these shapes")
}

/// A model that cannot be loaded.
fn load_error(reason: &str) -> EngineError {
    EngineError::Load {
        engine: NAME.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Something tract has no code for.
fn unsupported(operators: Vec<String>, reason: &str) -> EngineError {
    EngineError::Unsupported {
        engine: NAME.to_owned(),
        operators,
        reason: reason.to_owned(),
    }
}

/// Refuses a dtype tract does not have.
fn no_dtype(dtype: DType) -> EngineError {
    unsupported(Vec::new(), &format!("tract has no tensors of {dtype}"))
}

/// The most telling texts of an error and its causes, on one line: the outermost says where, the
/// innermost says what.
fn chain(error: &tract_onnx::prelude::TractError) -> String {
    let texts: Vec<String> = error.chain().map(ToString::to_string).collect();
    let text = match &texts[..] {
        [outer, .., inner] => format!("{outer}: {inner}"),
        [only] => only.clone(),
        [] => String::new(),
    };
    let text = text.replace('\n', " ");
    let end = text.floor_char_boundary(400);
    text[..end].to_owned()
}
