//! [`Runner`]: a graph of the library that can be run repeatedly.
//!
//! Invariant: a failed run names the operator that failed and leaves the graph usable. No run sees
//! the state of another one. The runner does not know which operators of the graph are replaced.

use std::cell::Cell;
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use tract_linalg::multithread::{Executor, multithread_tract_scope};
use tract_onnx::prelude::{TValue, TVec, TractResult, TypedModel};
use tract_onnx::tract_core::internal::RunOptions;
use tract_onnx::tract_core::plan::{SimplePlan, SimpleState, eval};

use super::fast;
use super::guard::{LibraryFailure, guarded};
use super::holdings::MemoryUse;
use super::overwrite::{self, Overwrite, is_overwritten};
use super::plans::CachedPlan;
use super::recording::Recording;
use super::recurrence::{StateReset, reset_each_run, state_reset};
use super::watch::{RuntimeCheck, check_for};
use crate::Profile;
use pkgtool_kernels::float::InPlace;

type RunnerState =
    SimpleState<tract_onnx::prelude::TypedFact, Box<dyn tract_onnx::prelude::TypedOp>>;

/// Why planning failed.
pub(crate) struct PlanError {
    /// The cause.
    pub(crate) failure: LibraryFailure,
    /// Is `true` if the graph is valid and only optimising it failed. It may run unoptimised.
    pub(crate) is_optimiser_error: bool,
}

impl From<LibraryFailure> for PlanError {
    fn from(failure: LibraryFailure) -> Self {
        Self {
            failure,
            is_optimiser_error: false,
        }
    }
}

/// Corrections for computations that the library does wrongly.
#[derive(Clone, Copy)]
pub(crate) struct Mending {
    /// Replacements of elementwise functions, by name; they work in place.
    pub(crate) functions: fn(&str) -> Option<InPlace>,
    /// Pins operators that the optimiser would move wrongly.
    pub(crate) pin: fn(&mut TypedModel) -> TractResult<()>,
    /// Applies final changes to an optimised graph.
    pub(crate) finalise: fn(&mut TypedModel),
}

/// A graph that can be run repeatedly.
pub(crate) struct Runner {
    state: RunnerState,
    /// The check for each node when it runs, by the node's number.
    watched: Vec<Option<RuntimeCheck>>,
    /// Is `true` if a node has a state that must be recreated before each run but the first.
    has_kept_state: bool,
    /// Is `true` if the graph has run since its states were created.
    has_run: bool,
    /// The operators that overwrite inputs of a run, the last one first.
    writers: Vec<Overwrite>,
    /// The values that the last, failed run left.
    left: Vec<TValue>,
    holdings: MemoryUse,
    /// The recording of later runs, if they are recorded.
    recording: Option<Recording>,
}

impl CachedPlan for Runner {
    fn memory_use(&self) -> &MemoryUse {
        &self.holdings
    }
}

impl Runner {
    /// Plans the graph that `build` returns, optimised if requested.
    pub(crate) fn new(
        executor: &Executor,
        optimise: bool,
        build: impl FnOnce() -> TractResult<TypedModel>,
        mending: Mending,
    ) -> Result<Self, PlanError> {
        let mut model = guarded(build)?;
        reset_each_run(&mut model);
        // Packing weights while planning uses the threads, too.
        let plan = || {
            multithread_tract_scope(executor.clone(), || {
                let mut model = if optimise {
                    fast::optimized(model, mending.functions, mending.pin)?
                } else {
                    model
                };
                (mending.finalise)(&mut model);
                spawned(model, executor)
            })
        };
        let state = guarded(plan).map_err(|failure| PlanError {
            failure,
            is_optimiser_error: optimise,
        })?;
        let nodes = state.plan().model().nodes().iter();
        let watched = nodes.map(|node| check_for(node.op.as_op())).collect();
        let keeps = keeps_state(&state)?;
        let plan = state.plan();
        let order = plan.order_without_consts().iter().rev();
        let writers = order.filter_map(|id| plan.model().node(*id).op_as::<Overwrite>());
        Ok(Self {
            holdings: MemoryUse::of(plan.model()),
            writers: writers.cloned().collect(),
            left: Vec::new(),
            state,
            watched,
            has_kept_state: keeps,
            has_run: false,
            recording: None,
        })
    }

    /// Returns the number of nodes.
    pub(crate) fn nodes(&self) -> u64 {
        self.state.plan().order_without_consts().len() as u64
    }

    /// Starts to record each node of later runs.
    pub(crate) fn begin_recording(&mut self) {
        self.recording = Some(Recording::default());
    }

    /// Stops recording and returns the recorded runs.
    pub(crate) fn end_recording(&mut self) -> Option<Profile> {
        self.recording.take().map(Recording::finish)
    }

    /// Runs the graph once; it must return this many outputs. A failure names the node that failed.
    pub(crate) fn run(
        &mut self,
        values: TVec<TValue>,
        outputs: usize,
    ) -> Result<TVec<TValue>, LibraryFailure> {
        self.forget()?;
        let current = Cell::new(None);
        // Keeps the inputs until the plan has taken all of them, which may fail.
        let mut held: Vec<TValue> = Vec::new();
        if !self.writers.is_empty() {
            held.extend(values.iter().cloned());
        }
        let (state, watched) = (&mut self.state, &self.watched);
        let recording = &mut self.recording;
        if let Some(recording) = recording {
            recording.begin_run();
        }
        let result = guarded(|| {
            state.run_plan_with_eval(values, |context, op_state, node, inputs| {
                held.clear();
                current.set(Some(node.id));
                let started = recording.as_ref().and_then(|it| it.node_start(&inputs));
                let watch = watched.get(node.id).copied().flatten();
                let outputs: TVec<TValue> = if let Some(watch) = watch {
                    watch.before(&inputs)?;
                    let outputs = eval(context, op_state, node, inputs.clone())?;
                    watch.after(&inputs, &outputs)?;
                    outputs
                } else {
                    eval(context, op_state, node, inputs)?
                };
                if let (Some(started), Some(recording)) = (started, recording.as_mut()) {
                    recording.node_end(node, &started, &outputs);
                }
                TractResult::Ok(outputs)
            })
        });
        if let Some(recording) = &mut self.recording {
            recording.end_run(result.is_ok());
        }
        match result {
            Ok(values) if values.len() == outputs => Ok(values),
            Ok(values) => {
                let count = values.len();
                self.left = values.into_vec();
                Err(LibraryFailure::new(format!(
                    "the run returned {count} outputs, expected {outputs}"
                )))
            }
            Err(failure) => {
                let operator = current.get().map(|id| self.describe(id));
                if !self.writers.is_empty() {
                    let values = mem::take(&mut self.state.turn_state.values);
                    held.extend(values.into_iter().flatten().flatten());
                    self.left = held;
                }
                self.renew()?;
                Err(failure.at(operator))
            }
        }
    }

    /// Returns `true` if a run overwrites this input in place when nobody else references it.
    pub(crate) fn overwrites(&self, input: usize) -> bool {
        let model = self.state.plan().model();
        let input = model.inputs.get(input);
        !self.writers.is_empty() && input.is_some_and(|input| is_overwritten(model, *input))
    }

    /// Makes all writes final after a run.
    pub(crate) fn commit_writes(&self) {
        self.writers.iter().for_each(Overwrite::commit);
    }

    /// Undoes the writes of a failed run. Returns its inputs in their previous state, by addresses.
    /// `outputs` are the outputs of that run, if it returned any.
    pub(crate) fn undo_writes(
        &mut self,
        outputs: impl IntoIterator<Item = TValue>,
    ) -> Result<HashMap<usize, TValue>, LibraryFailure> {
        let left = mem::take(&mut self.left).into_iter().chain(outputs);
        let places = left.filter_map(|value| Some((overwrite::address(&value)?, value)));
        let mut left = places.collect();
        let mut undo = |writer: &Overwrite| guarded(|| writer.undo(&mut left));
        self.writers.iter().try_for_each(&mut undo)?;
        Ok(left)
    }

    fn describe(&self, id: usize) -> String {
        let node = &self.state.plan().model().nodes()[id];
        node.name.clone()
    }

    /// Recreates the states that the previous run left.
    fn forget(&mut self) -> Result<(), LibraryFailure> {
        if self.has_run && self.has_kept_state {
            self.renew()?;
        }
        self.has_run = true;
        Ok(())
    }

    /// Recreates all states, because a failed run leaves incomplete values.
    fn renew(&mut self) -> Result<(), LibraryFailure> {
        let plan = Arc::clone(self.state.plan());
        self.state = guarded(|| plan.spawn())?;
        Ok(())
    }
}

fn spawned(model: TypedModel, executor: &Executor) -> TractResult<RunnerState> {
    let options = RunOptions {
        executor: Some(executor.clone()),
        ..RunOptions::default()
    };
    let plan: Arc<SimplePlan<_, _>> = SimplePlan::new_with_options(model, &options)?;
    plan.spawn()
}

/// Returns `true` if a node has a state that does not reset by itself.
fn keeps_state(state: &RunnerState) -> Result<bool, LibraryFailure> {
    let mut keeps = false;
    for (node, kept) in state.plan().model().nodes().iter().zip(&state.op_states) {
        keeps |= kept.is_some() && guarded(|| state_reset(node.op.as_op()))? == StateReset::Keeps;
    }
    Ok(keeps)
}

#[cfg(test)]
mod tests {
    use tract_onnx::tract_core::internal::{
        DatumExt as _, IntoTValue as _, OutletId, SpecialOps as _, Tensor, bail, tensor0, tvec,
    };

    use super::*;
    use crate::graph::corrections;
    use crate::graph::kernel::Kernel;

    /// Two writes into a kept tensor: at a position, and after it over the end of the first one.
    /// Then an operator reads all of it and fails on negative values.
    fn writing() -> TractResult<TypedModel> {
        let mut model = TypedModel::default();
        let float = |shape: [usize; 2]| f32::fact(shape);
        let kept = model.add_source("kept", float([1, 6]))?;
        let values = model.add_source("values", float([1, 2]))?;
        let position = model.add_source("position", i64::scalar_fact())?;
        let at = |offset: i64| {
            Overwrite::new(1, move |inputs| {
                Ok(usize::try_from(
                    inputs[2].cast_to_scalar::<i64>()? + offset,
                )?)
            })
        };
        let first = model.wire_node("first", at(0), &[kept, values, position])?[0];
        let second = model.wire_node("second", at(1), &[first, values, position])?[0];
        let facts = tvec!(float([1, 6]));
        let look = Kernel::new("Look", facts, |inputs| {
            if inputs[0]
                .try_as_plain_ram()?
                .as_slice::<f32>()?
                .iter()
                .any(|it| *it < 0.0)
            {
                bail!("it is negative");
            }
            Ok(tvec!(Tensor::clone(&inputs[0])))
        });
        let seen = model.wire_node("look", look, &[second])?[0];
        model.select_output_outlets(&[seen, second])?;
        Ok(model)
    }

    fn floats(values: &[f32]) -> TValue {
        let tensor = Tensor::from_shape(&[1, values.len()], values);
        tensor.expect("it is small").into_tvalue()
    }

    fn runner(build: impl FnOnce() -> TractResult<TypedModel>) -> Runner {
        let executor = Executor::SingleThread;
        let planned = Runner::new(&executor, true, build, corrections::CORRECTIONS);
        planned.unwrap_or_else(|unplanned| panic!("{:?}", unplanned.failure))
    }

    fn place(value: &TValue) -> usize {
        overwrite::address(value).expect("it has elements")
    }

    fn step(
        runner: &mut Runner,
        kept: TValue,
        values: [f32; 2],
        position: i64,
    ) -> Result<TValue, LibraryFailure> {
        let given = tvec!(kept, floats(&values), tensor0(position).into_tvalue());
        let mut outputs = runner.run(given, 2)?;
        assert_eq!(outputs[0], outputs[1]);
        runner.commit_writes();
        Ok(outputs.remove(1))
    }

    #[test]
    fn what_nobody_else_holds_is_written_to_where_it_is() {
        let mut runner = runner(writing);
        assert_eq!(
            [0, 1, 2, 3].map(|input| runner.overwrites(input)),
            [true, false, false, false]
        );
        let mut kept = floats(&[0.0; 6]);
        let first = place(&kept);
        for (position, expected) in [
            (0, [1.0, 1.0, 2.0, 0.0, 0.0, 0.0]),
            (3, [1.0, 1.0, 2.0, 1.0, 1.0, 2.0]),
            (1, [1.0, 1.0, 1.0, 2.0, 1.0, 2.0]),
        ] {
            kept = step(&mut runner, kept, [1.0, 2.0], position).expect("it fits");
            assert_eq!(kept, floats(&expected));
            assert_eq!(place(&kept), first);
        }
        // Another owner keeps the old values.
        let held = kept.clone();
        let other = step(&mut runner, kept, [8.0, 9.0], 0).expect("it fits");
        assert_eq!(other, floats(&[8.0, 8.0, 9.0, 2.0, 1.0, 2.0]));
        assert_eq!(held, floats(&[1.0, 1.0, 1.0, 2.0, 1.0, 2.0]));
    }

    #[test]
    fn a_failed_run_gives_back_what_it_wrote_over() {
        let mut runner = runner(writing);
        let before = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut kept = floats(&before);
        let first = place(&kept);
        for round in 0..3 {
            // Failures of the reader, of the second write, and of the first one; no input has its
            // shape.
            let wrong = [
                ([-1.0, 7.0], 2, None),
                ([7.0, 8.0], 4, None),
                ([7.0, 8.0], -1, None),
            ];
            let wrong = wrong.into_iter().chain([([7.0, 8.0], 0, Some([0.0; 3]))]);
            for (values, position, shape) in wrong {
                let values = shape.map_or_else(|| floats(&values), |values| floats(&values));
                let given = tvec!(kept, values, tensor0(position).into_tvalue());
                assert!(runner.run(given, 2).is_err(), "round {round}, {position}");
                let mut left = runner.undo_writes([]).expect("it was kept");
                kept = left.remove(&first).expect("it is left");
                assert_eq!(kept, floats(&before), "round {round}, {position}");
                assert_eq!(place(&kept), first);
            }
            // The run succeeds, but the caller discards the outputs.
            let given = tvec!(kept, floats(&[7.0, 8.0]), tensor0(3_i64).into_tvalue());
            let outputs = runner.run(given, 2).expect("it fits");
            assert_eq!(outputs[1], floats(&[1.0, 2.0, 3.0, 7.0, 7.0, 8.0]));
            let outputs = outputs.into_iter().skip(1);
            kept = runner
                .undo_writes(outputs)
                .expect("it was kept")
                .remove(&first)
                .expect("it is left");
            assert_eq!(kept, floats(&before), "round {round}");
            // The number of outputs is unexpected.
            let given = tvec!(kept, floats(&[7.0, 8.0]), tensor0(3_i64).into_tvalue());
            assert!(runner.run(given, 3).is_err());
            kept = runner
                .undo_writes([])
                .expect("it was kept")
                .remove(&first)
                .expect("it is left");
            assert_eq!(kept, floats(&before), "round {round}");
        }
    }

    #[test]
    fn what_a_failed_run_copied_is_given_back_too() {
        let mut runner = runner(writing);
        let held = floats(&[1.0; 6]);
        let given = tvec!(
            held.clone(),
            floats(&[-1.0, 7.0]),
            tensor0(2_i64).into_tvalue()
        );
        assert!(runner.run(given, 2).is_err());
        let mut left = runner.undo_writes([]).expect("it was kept");
        assert_eq!(left.remove(&place(&held)), Some(held));
    }

    #[test]
    fn what_others_may_do_away_with_is_not_written_to() {
        use tract_onnx::tract_core::ops::math::square;
        let graphs: [fn(&mut TypedModel, OutletId) -> TractResult<OutletId>; 2] = [
            // The returned tensor is not the written one.
            |model, written| Ok(model.wire_node("square", square(), &[written])?[0]),
            // The write goes to a tensor computed from the kept one.
            |model, _| {
                let kept = model.inputs[0];
                let made = model.wire_node("square", square(), &[kept])?[0];
                let again = Overwrite::new(1, |_| Ok(0));
                let inputs = [made, model.inputs[1], model.inputs[2]];
                Ok(model.wire_node("again", again, &inputs)?[0])
            },
        ];
        for (at, graph) in graphs.into_iter().enumerate() {
            let runner = runner(|| {
                let mut model = writing()?;
                let written = model.outputs[1];
                let output = graph(&mut model, written)?;
                let others = [output];
                model.select_output_outlets(&others)?;
                Ok(model)
            });
            assert!(!runner.overwrites(0), "{at}");
        }
    }
}
