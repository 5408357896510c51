//! A graph of the library that can be run again and again.
//!
//! Invariant: a failed run names the operator it was at and leaves the graph usable; no run sees what
//! another has left behind. Does not know what is mended in the graph.

use std::cell::Cell;
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use tract_linalg::multithread::{Executor, multithread_tract_scope};
use tract_onnx::prelude::{TValue, TVec, TractResult, TypedModel};
use tract_onnx::tract_core::internal::RunOptions;
use tract_onnx::tract_core::plan::{SimplePlan, SimpleState, eval};

use super::fast;
use super::guard::{Failure, guarded};
use super::holdings::Holdings;
use super::overwrite::{self, Overwrite, is_overwritten};
use super::plans::Planned;
use super::recurrence::{Memory, memory, start_anew};
use super::watch::{Watch, watch};
use crate::kernels::float::InPlace;

type State = SimpleState<tract_onnx::prelude::TypedFact, Box<dyn tract_onnx::prelude::TypedOp>>;

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

/// What computes rightly what the library does not.
#[derive(Clone, Copy)]
pub(super) struct Mending {
    /// Functions by their names, in place.
    pub(super) functions: fn(&str) -> Option<InPlace>,
    /// Keeps in its place what optimising would move wrongly.
    pub(super) hold: fn(&mut TypedModel) -> TractResult<()>,
    /// Has the last word on an optimised graph.
    pub(super) settle: fn(&mut TypedModel),
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
    /// What writes over what a run is given, the last first.
    writers: Vec<Overwrite>,
    /// What the last run, which failed, has left.
    left: Vec<TValue>,
    holdings: Holdings,
}

impl Planned for Runner {
    fn holdings(&self) -> &Holdings {
        &self.holdings
    }
}

impl Runner {
    /// Plans the graph that `build` gives, optimised if that is wanted.
    pub(super) fn new(
        executor: &Executor,
        optimise: bool,
        build: impl FnOnce() -> TractResult<TypedModel>,
        mending: Mending,
    ) -> Result<Self, Unplanned> {
        let mut model = guarded(build)?;
        start_anew(&mut model);
        // Packing weights while planning takes threads too.
        let plan = || {
            multithread_tract_scope(executor.clone(), || {
                let mut model = if optimise {
                    fast::optimized(model, mending.functions, mending.hold)?
                } else {
                    model
                };
                (mending.settle)(&mut model);
                spawned(model, executor)
            })
        };
        let state = guarded(plan).map_err(|failure| Unplanned {
            failure,
            optimising: optimise,
        })?;
        let nodes = state.plan().model().nodes().iter();
        let watched = nodes.map(|node| watch(node.op.as_op())).collect();
        let keeps = keeping(&state)?;
        let plan = state.plan();
        let order = plan.order_without_consts().iter().rev();
        let writers = order.filter_map(|id| plan.model().node(*id).op_as::<Overwrite>());
        Ok(Self {
            holdings: Holdings::of(plan.model()),
            writers: writers.cloned().collect(),
            left: Vec::new(),
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
        // Until the plan has taken them all, which may fail.
        let mut held: Vec<TValue> = Vec::new();
        if !self.writers.is_empty() {
            held.extend(values.iter().cloned());
        }
        let (state, watched) = (&mut self.state, &self.watched);
        let result = guarded(|| {
            state.run_plan_with_eval(values, |context, op_state, node, inputs| {
                held.clear();
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
            Ok(values) => {
                let count = values.len();
                self.left = values.into_vec();
                Err(Failure::new(format!(
                    "it gave {count} outputs, the model has {outputs}"
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

    /// Whether a run writes over this input where nobody else holds it.
    pub(super) fn overwrites(&self, input: usize) -> bool {
        let model = self.state.plan().model();
        let input = model.inputs.get(input);
        !self.writers.is_empty() && input.is_some_and(|input| is_overwritten(model, *input))
    }

    /// After a run: what was written over is not wanted back.
    pub(super) fn settle(&self) {
        self.writers.iter().for_each(Overwrite::settle);
    }

    /// After a run that came to nothing: what it was given and wrote over, as it was, by addresses. Its outputs are
    /// needed for that, if it gave any.
    pub(super) fn undone(
        &mut self,
        outputs: impl IntoIterator<Item = TValue>,
    ) -> Result<HashMap<usize, TValue>, Failure> {
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

fn spawned(model: TypedModel, executor: &Executor) -> TractResult<State> {
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

#[cfg(test)]
mod tests {
    use tract_onnx::tract_core::internal::{
        DatumExt as _, IntoTValue as _, OutletId, SpecialOps as _, Tensor, bail, tensor0, tvec,
    };

    use super::*;
    use crate::engine::tract::exact;
    use crate::engine::tract::kernel::Kernel;

    /// Two values are written into what is kept, at a position and after it, the second over the first's end; then
    /// something looks at all of it, and fails where it is negative.
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
        let planned = Runner::new(&executor, true, build, exact::MENDING);
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
    ) -> Result<TValue, Failure> {
        let given = tvec!(kept, floats(&values), tensor0(position).into_tvalue());
        let mut outputs = runner.run(given, 2)?;
        assert_eq!(outputs[0], outputs[1]);
        runner.settle();
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
        // Who else holds it keeps what it was.
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
            // The looker fails, the second writer, the first one; no input is of its shape.
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
                let mut left = runner.undone([]).expect("it was kept");
                kept = left.remove(&first).expect("it is left");
                assert_eq!(kept, floats(&before), "round {round}, {position}");
                assert_eq!(place(&kept), first);
            }
            // Nothing is wrong, but somebody does not want the outputs.
            let given = tvec!(kept, floats(&[7.0, 8.0]), tensor0(3_i64).into_tvalue());
            let outputs = runner.run(given, 2).expect("it fits");
            assert_eq!(outputs[1], floats(&[1.0, 2.0, 3.0, 7.0, 7.0, 8.0]));
            let outputs = outputs.into_iter().skip(1);
            kept = runner
                .undone(outputs)
                .expect("it was kept")
                .remove(&first)
                .expect("it is left");
            assert_eq!(kept, floats(&before), "round {round}");
            // Nor is there a number of outputs that anybody expects.
            let given = tvec!(kept, floats(&[7.0, 8.0]), tensor0(3_i64).into_tvalue());
            assert!(runner.run(given, 3).is_err());
            kept = runner
                .undone([])
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
        let mut left = runner.undone([]).expect("it was kept");
        assert_eq!(left.remove(&place(&held)), Some(held));
    }

    #[test]
    fn what_others_may_do_away_with_is_not_written_to() {
        use tract_onnx::tract_core::ops::math::square;
        let graphs: [fn(&mut TypedModel, OutletId) -> TractResult<OutletId>; 2] = [
            // What is given back is not what was written to.
            |model, written| Ok(model.wire_node("square", square(), &[written])?[0]),
            // Nothing is written to what is kept, but to something made of it.
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
