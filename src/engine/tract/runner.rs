//! A graph of the library that can be run again and again.
//!
//! Invariant: a failed run names the operator it was at and leaves the graph usable; no run sees what
//! another has left behind. Does not know what is mended in the graph.

use std::cell::Cell;
use std::sync::Arc;

use tract_linalg::multithread::{Executor, multithread_tract_scope};
use tract_onnx::prelude::{TValue, TVec, TractResult, TypedModel};
use tract_onnx::tract_core::internal::RunOptions;
use tract_onnx::tract_core::plan::{SimplePlan, SimpleState, eval};

use super::fast;
use super::guard::{Failure, guarded};
use super::holdings::Holdings;
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
                    fast::optimized(model, mending.functions)?
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
