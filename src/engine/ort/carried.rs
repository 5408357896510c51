//! What a session of ONNX Runtime carries from run to run, as values of the library: nothing is copied
//! between two runs.
//!
//! Where past and present of attention may be one buffer ([`super::shared`]), they are, and a run writes its
//! own positions only. Invariant: what is carried changes only when a run succeeded; of a shared buffer,
//! the positions that are held are never written again.

use std::borrow::Cow;

use ort::session::{Session, SessionInputValue};
use ort::value::DynValue;

use super::output::failed;
use super::shared::Shared;
use super::{failure, output, value};
use crate::engine::{Carrying, EngineError, LoadRequest, feedback};
use crate::tensor::{Tensor, TensorSpec};

/// What is carried, and what the next run begins with.
pub(super) struct Carried {
    carrying: Carrying,
    /// Places of the inputs that are given.
    given: Vec<usize>,
    inputs: Vec<TensorSpec>,
    /// What the next run begins with, in the order of [`Carrying::states`].
    states: Vec<DynValue>,
    /// If they are buffers that are past and present in one.
    shared: Option<Shared>,
}

impl Carried {
    /// What `request` wants to be carried, if it is anything.
    pub(super) fn of(request: &LoadRequest) -> Result<Option<Self>, EngineError> {
        let carrying = &request.options.carrying;
        if carrying.is_empty() {
            return Ok(None);
        }
        let mut carried = Self {
            given: carrying.given(&request.signature),
            inputs: request.signature.inputs.clone(),
            shared: Shared::of(request),
            carrying: carrying.clone(),
            states: Vec::new(),
        };
        carried.states = carried.begun()?;
        Ok(Some(carried))
    }

    /// What the first run begins with.
    fn begun(&self) -> Result<Vec<DynValue>, EngineError> {
        let states = self.carrying.states.iter().map(|state| {
            let dtype = self.inputs[state.input].dtype;
            let zeros = Tensor::zeros(dtype, state.begin.clone());
            let zeros = zeros.map_err(|error| failed(error.to_string()))?;
            value::owned(&zeros).map_err(|error| failure::of_running(&error))
        });
        states.collect()
    }

    /// All inputs as far as they are given, in the signature's order: those that are carried are not.
    pub(super) fn seen<'a>(&self, given: &'a [Tensor]) -> Vec<Option<&'a Tensor>> {
        let mut seen = vec![None; self.inputs.len()];
        for (place, tensor) in self.given.iter().zip(given) {
            seen[*place] = Some(tensor);
        }
        seen
    }

    /// Runs the session with these inputs and what is carried. `names` are the names of all inputs,
    /// `outputs` all outputs.
    pub(super) fn run(
        &mut self,
        session: &mut Session,
        (names, outputs): (&[String], &[TensorSpec]),
        given: &[Tensor],
    ) -> Result<Vec<Tensor>, EngineError> {
        if given.len() != self.given.len() {
            let (found, expected) = (given.len(), self.given.len());
            return Err(failed(format!("it takes {expected} inputs, not {found}")));
        }
        if let Some(shared) = &mut self.shared {
            shared.make_room(given, &mut self.states)?;
        }
        let refused = |error: ort::Error| failure::of_running(&error);
        let mut values: Vec<(Cow<'_, str>, SessionInputValue<'_>)> = Vec::new();
        for (place, tensor) in self.given.iter().zip(given) {
            let name = Cow::Borrowed(names[*place].as_str());
            values.push((name, value::input(tensor).map_err(refused)?));
        }
        for (state, value) in self.carrying.states.iter().zip(&self.states) {
            let name = Cow::Borrowed(names[state.input].as_str());
            values.push((name, value.into()));
        }
        let options = self.shared.as_ref().and_then(Shared::options);
        let found = match options {
            Some(options) => session.run_with_options(values, options),
            None => session.run(values),
        };
        // In the model's order: two outputs may have the same name.
        let found = found.map_err(refused)?.into_iter().map(|(_, value)| value);
        let (states, taken) = sort(&self.carrying, outputs, found)?;
        self.states = states;
        if let Some(shared) = &mut self.shared {
            shared.ran(given);
        }
        Ok(taken)
    }

    /// Begins anew.
    pub(super) fn forget(&mut self) -> Result<(), EngineError> {
        if let Some(shared) = &mut self.shared {
            return shared.cut(0);
        }
        self.states = self.begun()?;
        Ok(())
    }

    /// Keeps the first positions.
    pub(super) fn cut(&mut self, length: u64) -> Result<(), EngineError> {
        if let Some(shared) = &mut self.shared {
            return shared.cut(length);
        }
        let states = self.carrying.states.iter().zip(&self.states);
        let cut = states.map(|(state, value)| {
            let tensor = value::copied(value).map_err(|error| failed(error.to_string()))?;
            let axis = state
                .axis
                .ok_or_else(|| failed(feedback::UNCUT.to_owned()))?;
            let part = tensor.part(axis, 0..length);
            let part = part.map_err(|error| failed(error.to_string()))?;
            value::owned(&part).map_err(|error| failure::of_running(&error))
        });
        self.states = cut.collect::<Result<_, _>>()?;
        Ok(())
    }
}

/// Outputs that are carried, in the order of [`Carrying::states`], and those that are taken.
fn sort(
    carrying: &Carrying,
    outputs: &[TensorSpec],
    found: impl Iterator<Item = DynValue>,
) -> Result<(Vec<DynValue>, Vec<Tensor>), EngineError> {
    let mut states: Vec<Option<DynValue>> = carrying.states.iter().map(|_| None).collect();
    let mut taken = Vec::new();
    let mut count = 0;
    for (place, (spec, value)) in outputs.iter().zip(found).enumerate() {
        count += 1;
        let is_of = |state: &crate::engine::Carried| state.output == place;
        if let Some(index) = carrying.states.iter().position(is_of) {
            states[index] = Some(value);
            continue;
        }
        let tensor = output::of(spec, value)?;
        let last = carrying.last.iter().find(|last| last.place == place);
        taken.push(match last {
            Some(last) => tensor
                .last(last.axis)
                .map_err(|error| failed(format!("output `{}`: {error}", spec.name)))?,
            None => tensor,
        });
    }
    let states: Option<Vec<DynValue>> = states.into_iter().collect();
    match states {
        Some(states) if count == outputs.len() => Ok((states, taken)),
        _ => Err(failed(format!(
            "it gave {count} outputs, not {}",
            outputs.len()
        ))),
    }
}
