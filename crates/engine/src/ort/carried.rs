//! Carried state of an ONNX Runtime session, kept as values of the library so that nothing is
//! copied between runs.
//!
//! Attention models can use one buffer for past and present ([`super::shared`]); a run then writes
//! its own positions only.
//!
//! Invariant: the carried state changes only after a successful run. In a shared buffer, kept
//! positions are never overwritten.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ort::session::{HasSelectedOutputs, RunOptions, Session, SessionInputValue};
use ort::value::DynValue;

use super::output::failed;
use super::shared::SharedBuffers;
use super::{failure, output, value};
use crate::lanes::{LaneStates, NextRow, NextRun, PackedStates, RowStart};
use crate::tensor::{Tensor, TensorSpec};
use crate::{Carrying, EngineError, LoadRequest, RunStart};

/// The carried state, and the rows of the next run.
pub(super) struct CarriedValues {
    carrying: Carrying,
    /// Positions of the inputs that callers give.
    given: Vec<usize>,
    inputs: Vec<TensorSpec>,
    /// The initial state of a lane that keeps nothing, in the order of [`Carrying::states`].
    begun: Vec<Tensor>,
    keeping: LaneStorage,
    next: NextRun,
}

/// How the states of lanes are stored.
enum LaneStorage {
    /// In buffers that serve as past and present.
    Shared(SharedBuffers),
    /// Each state as the run returned it.
    Values(BTreeMap<u32, Vec<DynValue>>),
}

/// The states that a run reads.
enum RunStates<'a> {
    /// The kept states of one lane, or of several lanes that share buffers.
    Kept(&'a [DynValue], Option<&'a RunOptions<HasSelectedOutputs>>),
    /// States of several lanes, packed for this run only.
    Packed(Vec<DynValue>, PackedStates),
    /// States of one row that differ from the ones its lane keeps.
    Own(Vec<DynValue>),
}

impl CarriedValues {
    /// Creates the state that `request` asks to carry; `None` if it asks for none.
    pub(super) fn of(request: &LoadRequest) -> Result<Option<Self>, EngineError> {
        let carrying = &request.options.carrying;
        if carrying.is_empty() {
            return Ok(None);
        }
        let inputs = &request.signature.inputs;
        let begun = carrying.states.iter().map(|state| {
            let zeros = Tensor::zeros(inputs[state.input].dtype, state.begin.clone());
            zeros.map_err(|error| failed(error.to_string()))
        });
        Ok(Some(Self {
            given: carrying.given(&request.signature),
            inputs: inputs.clone(),
            begun: begun.collect::<Result<_, _>>()?,
            keeping: match SharedBuffers::of(request) {
                Some(shared) => LaneStorage::Shared(shared),
                None => LaneStorage::Values(BTreeMap::new()),
            },
            next: NextRun::first(),
            carrying: carrying.clone(),
        }))
    }

    /// Returns one entry per input in the signature's order: the given tensor, or `None` for a
    /// carried one.
    pub(super) fn given_inputs<'a>(&self, given: &'a [Tensor]) -> Vec<Option<&'a Tensor>> {
        let mut seen = vec![None; self.inputs.len()];
        for (place, tensor) in self.given.iter().zip(given) {
            seen[*place] = Some(tensor);
        }
        seen
    }

    /// Runs the session with these inputs and the carried state. `names` are the names of all
    /// inputs, `outputs` all outputs.
    pub(super) fn run(
        &mut self,
        session: &mut Session,
        (names, outputs): (&[String], &[TensorSpec]),
        given: &[Tensor],
    ) -> Result<Vec<Tensor>, EngineError> {
        if given.len() != self.given.len() {
            let (found, expected) = (given.len(), self.given.len());
            return Err(failed(format!("expected {expected} inputs, got {found}")));
        }
        let rows = self.next.rows();
        let states = match &mut self.keeping {
            LaneStorage::Shared(shared) => {
                let (states, options) = shared.make_room(rows, given)?;
                RunStates::Kept(states, Some(options))
            }
            LaneStorage::Values(lanes) => row_states(&self.carrying, &self.begun, lanes, rows)?,
        };
        let refused = |error: ort::Error| failure::of_running(&error);
        let hidden = padded_mask(&self.carrying, &self.given, &states, given)?;
        let mut values: Vec<(Cow<'_, str>, SessionInputValue<'_>)> = Vec::new();
        for (place, tensor) in self.given.iter().zip(given) {
            let name = Cow::Borrowed(names[*place].as_str());
            let mask = hidden
                .as_ref()
                .filter(|_| self.carrying.mask == Some(*place));
            values.push((name, value::input(mask.unwrap_or(tensor)).map_err(refused)?));
        }
        for (state, value) in self.carrying.states.iter().zip(states.values()) {
            let name = Cow::Borrowed(names[state.input].as_str());
            values.push((name, value.into()));
        }
        let found = match &states {
            RunStates::Kept(_, Some(options)) => session.run_with_options(values, options),
            _ => session.run(values),
        };
        // Matching is by position: two outputs may have the same name.
        let found = found.map_err(refused)?.into_iter().map(|(_, value)| value);
        let (left, taken) = split_outputs(&self.carrying, outputs, found)?;
        let packed = match states {
            RunStates::Packed(_, packed) => Some(packed),
            RunStates::Kept(..) | RunStates::Own(_) => None,
        };
        match (&mut self.keeping, packed) {
            (LaneStorage::Shared(shared), _) => shared.record_run(left, given),
            (LaneStorage::Values(lanes), None) => {
                let lane = rows.first().map_or(0, |row| row.lane);
                let before = lanes.remove(&lane).unwrap_or_default();
                lanes.insert(lane, kept(&self.carrying, left, before));
            }
            (LaneStorage::Values(lanes), Some(packed)) => {
                store_rows(&self.carrying, lanes, rows, &packed, &left)?;
            }
        }
        self.next.ran();
        Ok(taken)
    }

    /// Sets the state from which the next run starts.
    pub(super) fn begin(&mut self, begins: &RunStart) -> Result<(), EngineError> {
        let mut next = NextRun::first();
        let forgotten = next.begin(begins);
        if let RunStart::Cut(length) = begins {
            self.check_cut(*length)?;
        }
        match &mut self.keeping {
            LaneStorage::Shared(shared) => shared.forget(&forgotten),
            LaneStorage::Values(lanes) => lanes.retain(|lane, _| !forgotten.has(*lane)),
        }
        self.next = next;
        Ok(())
    }

    /// Fails if lane 0 has fewer positions.
    fn check_cut(&self, length: u64) -> Result<(), EngineError> {
        match &self.keeping {
            LaneStorage::Shared(shared) => shared.check_cut(length),
            LaneStorage::Values(lanes) => {
                let rows = [NextRow {
                    lane: 0,
                    from: RowStart::First(length),
                }];
                row_states(&self.carrying, &self.begun, lanes, &rows).map(drop)
            }
        }
    }
}

impl RunStates<'_> {
    fn values(&self) -> &[DynValue] {
        match self {
            Self::Kept(values, _) => values,
            Self::Packed(values, _) | Self::Own(values) => values,
        }
    }
}

/// Returns the states after a run that left `left`. Empty ones without positions stay as they were `before`.
fn kept(carrying: &Carrying, left: Vec<DynValue>, before: Vec<DynValue>) -> Vec<DynValue> {
    let mut before = before.into_iter();
    let states = carrying.states.iter().zip(left);
    states
        .map(|(carried, value)| {
            let old = before.next();
            let is_empty = value.shape().contains(&0);
            old.filter(|_| carried.is_left_out(is_empty))
                .unwrap_or(value)
        })
        .collect()
}

/// Returns the mask of a run with padded rows, or `None`. `places` are the positions of `given`.
fn padded_mask(
    carrying: &Carrying,
    places: &[usize],
    states: &RunStates<'_>,
    given: &[Tensor],
) -> Result<Option<Tensor>, EngineError> {
    let (RunStates::Packed(_, packed), Some(mask)) = (states, carrying.mask) else {
        return Ok(None);
    };
    let place = places.iter().position(|place| *place == mask);
    let mask = place.map(|place| packed.mask(&given[place]));
    mask.transpose().map_err(failed)
}

/// Returns the states from which the rows start. The complete state of one lane is borrowed, not
/// copied.
fn row_states<'a>(
    carrying: &Carrying,
    begun: &[Tensor],
    lanes: &'a BTreeMap<u32, Vec<DynValue>>,
    rows: &[NextRow],
) -> Result<RunStates<'a>, EngineError> {
    if let [only] = rows
        && let Some(kept) = lanes.get(&only.lane)
        && continues_all(carrying, kept, only.from)
    {
        return Ok(RunStates::Kept(kept, None));
    }
    let mut copies = LaneStates::default();
    for row in rows {
        if row.from != RowStart::Nothing
            && let Some(kept) = lanes.get(&row.lane)
        {
            copies.put(row.lane, tensors(kept)?);
        }
    }
    let packed = copies.pack(carrying, rows, begun).map_err(failed)?;
    let values = owned(&packed.states)?;
    Ok(if rows.len() == 1 {
        RunStates::Own(values)
    } else {
        RunStates::Packed(values, packed)
    })
}

/// Returns `true` if a row continues with its lane's complete state.
fn continues_all(carrying: &Carrying, kept: &[DynValue], from: RowStart) -> bool {
    let length = match from {
        RowStart::Nothing => return false,
        RowStart::All => return true,
        RowStart::First(length) => length,
    };
    let mut states = carrying.states.iter().zip(kept);
    states.all(|(state, value)| {
        let size = state.axis.and_then(|axis| {
            let shape = value.shape();
            shape.get(axis).copied()
        });
        size.and_then(|size| u64::try_from(size).ok()) == Some(length)
    })
}

/// Stores the states of several rows after a run, one per lane.
fn store_rows(
    carrying: &Carrying,
    lanes: &mut BTreeMap<u32, Vec<DynValue>>,
    rows: &[NextRow],
    packed: &PackedStates,
    left: &[DynValue],
) -> Result<(), EngineError> {
    let mut kept = LaneStates::default();
    kept.keep(carrying, rows, packed, tensors(left)?)
        .map_err(failed)?;
    let kept = kept
        .into_iter()
        .map(|(lane, states)| Ok((lane, owned(&states)?)));
    lanes.extend(kept.collect::<Result<Vec<_>, EngineError>>()?);
    Ok(())
}

fn tensors(values: &[DynValue]) -> Result<Vec<Tensor>, EngineError> {
    let tensors = values
        .iter()
        .map(|value| value::copied(value).map_err(|error| failed(error.to_string())));
    tensors.collect()
}

fn owned(tensors: &[Tensor]) -> Result<Vec<DynValue>, EngineError> {
    let values = tensors
        .iter()
        .map(|tensor| value::owned(tensor).map_err(|error| failure::of_running(&error)));
    values.collect()
}

/// Splits the outputs into the carried ones, in the order of [`Carrying::states`], and those for
/// the caller.
fn split_outputs(
    carrying: &Carrying,
    outputs: &[TensorSpec],
    found: impl Iterator<Item = DynValue>,
) -> Result<(Vec<DynValue>, Vec<Tensor>), EngineError> {
    let mut states: Vec<Option<DynValue>> = carrying.states.iter().map(|_| None).collect();
    let mut taken = Vec::new();
    let mut count = 0;
    for (place, (spec, value)) in outputs.iter().zip(found).enumerate() {
        count += 1;
        let is_of = |state: &crate::CarriedTensor| state.output == place;
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
            "the run returned {count} outputs, expected {}",
            outputs.len()
        ))),
    }
}
