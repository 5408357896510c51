//! A session wrapper that feeds outputs of a run back as inputs of the next one, such as a KV
//! cache.
//!
//! Engines that cannot carry state by themselves wrap their sessions in it ([`with_feedback`]).
//!
//! Invariant: the carried state changes only after a successful run. The wrapper knows no engine
//! and no model.

use super::carrying::{Carrying, RunStart};
use super::contract::{LoadRequest, RunAnswer, Session};
use super::error::EngineError;
use super::lanes::{LaneStates, NextRun, PackedStates};
use super::profile::Profile;
use super::provider::Placement;
use crate::tensor::{Tensor, TensorSpec};

/// Wraps the session so that it carries the state that `request` asks for.
pub(super) fn with_feedback(
    engine: &'static str,
    session: Box<dyn Session>,
    request: &LoadRequest,
) -> Result<Box<dyn Session>, EngineError> {
    let carrying = &request.options.carrying;
    if carrying.is_empty() {
        return Ok(session);
    }
    check(engine, request)?;
    let signature = &request.signature;
    let mut fed = Feedback {
        engine,
        session,
        inputs: signature.inputs.clone(),
        given: carrying.given(signature),
        taken: carrying.taken(signature),
        carrying: carrying.clone(),
        begun: Vec::new(),
        kept: LaneStates::default(),
        next: NextRun::first(),
    };
    fed.begun = fed.begun()?;
    Ok(Box::new(fed))
}

/// Fails if the requested carrying does not fit the method.
pub(super) fn check(engine: &str, request: &LoadRequest) -> Result<(), EngineError> {
    let checked = request.options.carrying.check(&request.signature);
    checked.map_err(|reason| EngineError::Load {
        engine: engine.to_owned(),
        reason,
    })
}

struct Feedback {
    engine: &'static str,
    session: Box<dyn Session>,
    inputs: Vec<TensorSpec>,
    carrying: Carrying,
    /// Positions in the signature of the inputs that callers give, and of the outputs that they
    /// receive.
    given: Vec<usize>,
    taken: Vec<usize>,
    /// The initial state of a lane that keeps nothing, in the order of [`Carrying::states`].
    begun: Vec<Tensor>,
    kept: LaneStates,
    next: NextRun,
}

impl Feedback {
    /// Returns the initial state of a lane that keeps nothing.
    fn begun(&self) -> Result<Vec<Tensor>, EngineError> {
        let states = self.carrying.states.iter().map(|state| {
            let dtype = self.inputs[state.input].dtype;
            Tensor::zeros(dtype, state.begin.clone())
        });
        let states: Result<_, _> = states.collect();
        states.map_err(|error| self.failed(error.to_string()))
    }

    /// Returns all inputs in the signature's order: the given ones and the carried state.
    fn all_inputs(
        &self,
        given: &[Tensor],
        packed: &PackedStates,
    ) -> Result<Vec<Tensor>, EngineError> {
        if given.len() != self.given.len() {
            let (found, expected) = (given.len(), self.given.len());
            return Err(self.failed(format!("expected {expected} inputs, got {found}")));
        }
        let given = self.given.iter().copied().zip(given);
        let states = self.carrying.states.iter().map(|state| state.input);
        let mut inputs: Vec<_> = given.chain(states.zip(&packed.states)).collect();
        inputs.sort_by_key(|(place, _)| *place);
        let inputs = inputs.into_iter().map(|(place, tensor)| {
            if self.carrying.mask == Some(place) {
                return packed.mask(tensor).map_err(|reason| self.failed(reason));
            }
            Ok(tensor.clone())
        });
        inputs.collect()
    }

    fn failed(&self, reason: String) -> EngineError {
        EngineError::Run {
            engine: self.engine.to_owned(),
            operator: None,
            reason,
        }
    }
}

impl Session for Feedback {
    fn run(&mut self, inputs: &[Tensor]) -> Result<RunAnswer, EngineError> {
        let packed = self
            .kept
            .pack(&self.carrying, self.next.rows(), &self.begun);
        let packed = packed.map_err(|reason| self.failed(reason))?;
        let inputs = self.all_inputs(inputs, &packed)?;
        let answer = self.session.run(&inputs)?;
        let mut outputs: Vec<Option<Tensor>> = answer.outputs.into_iter().map(Some).collect();
        let mut take = |place: usize| outputs.get_mut(place).and_then(Option::take);
        let states = self.carrying.states.iter();
        let states: Option<Vec<Tensor>> = states.map(|state| take(state.output)).collect();
        let taken: Option<Vec<Tensor>> = self.taken.iter().map(|place| take(*place)).collect();
        let (Some(states), Some(mut taken)) = (states, taken) else {
            return Err(
                self.failed("the run returned fewer outputs than the model declares".to_owned())
            );
        };
        for last in &self.carrying.last {
            if let Some(index) = self.taken.iter().position(|place| *place == last.place) {
                let part = taken[index].clone().last(last.axis);
                taken[index] = part.map_err(|error| self.failed(error.to_string()))?;
            }
        }
        let kept = (self.kept).keep(&self.carrying, self.next.rows(), &packed, states);
        kept.map_err(|reason| self.failed(reason))?;
        self.next.ran();
        Ok(RunAnswer {
            outputs: taken,
            time: answer.time,
        })
    }

    fn reset_state(&mut self) -> Result<(), EngineError> {
        self.begin(RunStart::Anew)
    }

    fn begin(&mut self, begins: RunStart) -> Result<(), EngineError> {
        self.kept.forget(&self.next.begin(&begins));
        // State inside the wrapped session has no lanes.
        match begins {
            RunStart::Lanes(_) => Ok(()),
            begins => self.session.begin(begins),
        }
    }

    fn truncate_state(&mut self, length: u64) -> Result<(), EngineError> {
        let mut next = NextRun::first();
        next.begin(&RunStart::Cut(length));
        let cut = self.kept.pack(&self.carrying, next.rows(), &self.begun);
        cut.map_err(|reason| self.failed(reason))?;
        self.next = next;
        self.session.truncate_state(length)
    }

    fn placement(&mut self) -> Placement {
        self.session.placement()
    }

    fn begin_profile(&mut self) {
        self.session.begin_profile();
    }

    fn end_profile(&mut self) -> Option<Profile> {
        self.session.end_profile()
    }
}
