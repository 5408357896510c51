//! What a session of ONNX Runtime carries from run to run, as values of the library: nothing is copied
//! between two runs.
//!
//! Where past and present of attention may be one buffer ([`super::shared`]), they are, and a run writes its
//! own positions only. Invariant: what is carried changes only when a run succeeded; of a shared buffer,
//! the positions that are held are never written again.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ort::session::{HasSelectedOutputs, RunOptions, Session, SessionInputValue};
use ort::value::DynValue;

use super::output::failed;
use super::shared::Shared;
use super::{failure, output, value};
use crate::engine::lanes::{From, Kept, Next, NextRow, Packed};
use crate::engine::{Begins, Carrying, EngineError, LoadRequest};
use crate::tensor::{Tensor, TensorSpec};

/// What is carried, and what the next run begins with.
pub(super) struct Carried {
    carrying: Carrying,
    /// Places of the inputs that are given.
    given: Vec<usize>,
    inputs: Vec<TensorSpec>,
    /// What a run begins with where nothing is kept, in the order of [`Carrying::states`].
    begun: Vec<Tensor>,
    keeping: Keeping,
    next: Next,
}

/// How lanes are kept.
enum Keeping {
    /// In buffers that are past and present in one.
    Shared(Shared),
    /// Each as the run left it.
    Values(BTreeMap<u32, Vec<DynValue>>),
}

/// The states of a run.
enum States<'a> {
    /// Those of one lane, or of several that were kept together.
    Kept(&'a [DynValue], Option<&'a RunOptions<HasSelectedOutputs>>),
    /// Put together for this run only.
    Packed(Vec<DynValue>, Packed),
    /// Those of one row, which are not what its lane keeps.
    Own(Vec<DynValue>),
}

impl Carried {
    /// What `request` wants to be carried, if it is anything.
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
            keeping: match Shared::of(request) {
                Some(shared) => Keeping::Shared(shared),
                None => Keeping::Values(BTreeMap::new()),
            },
            next: Next::first(),
            carrying: carrying.clone(),
        }))
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
        let rows = self.next.rows();
        let states = match &mut self.keeping {
            Keeping::Shared(shared) => {
                let (states, options) = shared.make_room(rows, given)?;
                States::Kept(states, Some(options))
            }
            Keeping::Values(lanes) => of_lanes(&self.carrying, &self.begun, lanes, rows)?,
        };
        let refused = |error: ort::Error| failure::of_running(&error);
        let hidden = hidden(&self.carrying, &self.given, &states, given)?;
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
            States::Kept(_, Some(options)) => session.run_with_options(values, options),
            _ => session.run(values),
        };
        // In the model's order: two outputs may have the same name.
        let found = found.map_err(refused)?.into_iter().map(|(_, value)| value);
        let (left, taken) = sort(&self.carrying, outputs, found)?;
        let packed = match states {
            States::Packed(_, packed) => Some(packed),
            States::Kept(..) | States::Own(_) => None,
        };
        match (&mut self.keeping, packed) {
            (Keeping::Shared(shared), _) => shared.ran(left, given),
            (Keeping::Values(lanes), None) => {
                let lane = rows.first().map_or(0, |row| row.lane);
                lanes.insert(lane, left);
            }
            (Keeping::Values(lanes), Some(packed)) => {
                divide(&self.carrying, lanes, rows, &packed, &left)?;
            }
        }
        self.next.ran();
        Ok(taken)
    }

    /// Lets the next run begin so.
    pub(super) fn begin(&mut self, begins: &Begins) -> Result<(), EngineError> {
        let mut next = Next::first();
        let forgotten = next.begin(begins);
        if let Begins::Cut(length) = begins {
            self.check_cut(*length)?;
        }
        match &mut self.keeping {
            Keeping::Shared(shared) => shared.forget(&forgotten),
            Keeping::Values(lanes) => lanes.retain(|lane, _| !forgotten.has(*lane)),
        }
        self.next = next;
        Ok(())
    }

    /// Fails if lane 0 has not so many positions.
    fn check_cut(&self, length: u64) -> Result<(), EngineError> {
        match &self.keeping {
            Keeping::Shared(shared) => shared.check_cut(length),
            Keeping::Values(lanes) => {
                let rows = [NextRow {
                    lane: 0,
                    from: From::First(length),
                }];
                of_lanes(&self.carrying, &self.begun, lanes, &rows).map(drop)
            }
        }
    }
}

impl States<'_> {
    fn values(&self) -> &[DynValue] {
        match self {
            Self::Kept(values, _) => values,
            Self::Packed(values, _) | Self::Own(values) => values,
        }
    }
}

/// The mask of a run whose rows were filled up, if it is one. `places` are those of `given`.
fn hidden(
    carrying: &Carrying,
    places: &[usize],
    states: &States<'_>,
    given: &[Tensor],
) -> Result<Option<Tensor>, EngineError> {
    let (States::Packed(_, packed), Some(mask)) = (states, carrying.mask) else {
        return Ok(None);
    };
    let place = places.iter().position(|place| *place == mask);
    let mask = place.map(|place| packed.mask(&given[place]));
    mask.transpose().map_err(failed)
}

/// What rows begin with: without a copy where it is what one lane keeps.
fn of_lanes<'a>(
    carrying: &Carrying,
    begun: &[Tensor],
    lanes: &'a BTreeMap<u32, Vec<DynValue>>,
    rows: &[NextRow],
) -> Result<States<'a>, EngineError> {
    if let [only] = rows
        && let Some(kept) = lanes.get(&only.lane)
        && is_all(carrying, kept, only.from)
    {
        return Ok(States::Kept(kept, None));
    }
    let mut copies = Kept::default();
    for row in rows {
        if row.from != From::Nothing
            && let Some(kept) = lanes.get(&row.lane)
        {
            copies.put(row.lane, tensors(kept)?);
        }
    }
    let packed = copies.pack(carrying, rows, begun).map_err(failed)?;
    let values = owned(&packed.states)?;
    Ok(if rows.len() == 1 {
        States::Own(values)
    } else {
        States::Packed(values, packed)
    })
}

/// Whether a row goes on with all that its lane keeps.
fn is_all(carrying: &Carrying, kept: &[DynValue], from: From) -> bool {
    let length = match from {
        From::Nothing => return false,
        From::All => return true,
        From::First(length) => length,
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

/// Keeps what a run of several rows has left.
fn divide(
    carrying: &Carrying,
    lanes: &mut BTreeMap<u32, Vec<DynValue>>,
    rows: &[NextRow],
    packed: &Packed,
    left: &[DynValue],
) -> Result<(), EngineError> {
    let mut kept = Kept::default();
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
