//! Shared buffers for the keys and values of attention: one buffer serves as past and present of a
//! run.
//!
//! `GroupQueryAttention`
//! (<https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>) appends the keys
//! and values of a run to the previous ones. If past and present are one buffer, it copies nothing.
//! Other inputs state how many positions of the buffer count. The library provides a second handle
//! of a value only as an output of a run. Therefore a run whose buffers are too small reads larger
//! copies and writes into new buffers, and later runs read what they write.
//!
//! Lanes that run together are rows of the same buffers. A different combination of lanes gets new
//! buffers.
//!
//! Invariant: the counted positions of a lane are those that runs have written, whatever follows
//! them. Each lane is in one row of one group.

use ort::memory::Allocator;
use ort::session::{HasSelectedOutputs, OutputSelector, RunOptions};
use ort::value::{
    DynTensor, DynValue, PrimitiveTensorElementType, Tensor as Owned, TensorElementType,
};

use super::failure;
use super::output::failed;
use crate::lanes::{ForgottenLanes, NextRow, RowStart};
use crate::tensor::{DType, Signature, Tensor};
use crate::{Carrying, EngineError, LoadRequest, Provider, TensorAxis};
use pkgtool_base::source::{FileSource, Pages};
use pkgtool_model::onnx::{OnnxNode, each_node};

/// The attention operator.
const ATTENTION: &str = "com.microsoft::GroupQueryAttention";
/// Its inputs `past_key` and `past_value`, each with the matching output.
const PAST_PRESENT_PAIRS: [(usize, usize); 2] = [(3, 1), (4, 2)];
/// The axis of positions: keys and values have the shape [batch, heads, positions, size].
const POSITION_AXIS: usize = 2;
/// Minimum capacity of buffers, in positions, if the model allows as many.
const MIN_CAPACITY: u64 = 256;

/// The buffers of a session.
pub(super) struct SharedBuffers {
    /// Names of the outputs, with their sizes and dtype. The size at the axis of positions is
    /// ignored.
    outputs: Vec<(String, [u64; 4], DType)>,
    /// The given input and the axis whose size is the number of positions that a run adds.
    added: TensorAxis,
    /// Maximum number of positions.
    max_positions: u64,
    groups: Vec<LaneGroup>,
    /// The index of the next run's group.
    current: usize,
}

/// Lanes that run together, in the rows of the same buffers.
struct LaneGroup {
    /// The lane of each row, or `None` after it has left, and the number of its counted positions.
    rows: Vec<(Option<u32>, u64)>,
    /// Capacity of the buffers, in positions.
    capacity: u64,
    states: Vec<DynValue>,
    /// Run options with the buffers as outputs.
    options: RunOptions<HasSelectedOutputs>,
}

/// The location of a lane: its group and row.
type LaneLocation = (usize, usize);

impl SharedBuffers {
    /// Creates buffers for the carried state of a model; `None` if past and present cannot share
    /// them.
    pub(super) fn of(request: &LoadRequest) -> Option<Self> {
        let carrying = &request.options.carrying;
        let signature = &request.signature;
        let on_cpu = request.options.provider == Provider::Cpu;
        let (added, most) = (carrying.added.filter(|_| on_cpu)?, carrying.most?);
        let outputs: Option<Vec<_>> = carrying
            .states
            .iter()
            .map(|state| {
                let spec = &signature.outputs[state.output];
                let sizes: [u64; 4] = state.begin.as_slice().try_into().ok()?;
                let fits =
                    state.axis == Some(POSITION_AXIS) && sizes[POSITION_AXIS] == 0 && sizes[0] == 1;
                let has_code = matches!(spec.dtype, DType::Float32 | DType::Float16);
                (fits && has_code).then(|| (spec.name.clone(), sizes, spec.dtype))
            })
            .collect();
        let outputs = outputs.filter(|outputs| !outputs.is_empty())?;
        let given = carrying.given(signature);
        let place = given.iter().position(|place| *place == added.place)?;
        is_only_attention(request, carrying, signature).then_some(Self {
            outputs,
            added: TensorAxis { place, ..added },
            max_positions: most,
            groups: Vec::new(),
            current: 0,
        })
    }

    fn added(&self, given: &[Tensor]) -> u64 {
        let shape = given.get(self.added.place).map(Tensor::shape);
        let size = shape.and_then(|shape| shape.get(self.added.axis));
        size.copied().unwrap_or(0)
    }

    fn place(&self, lane: u32) -> Option<LaneLocation> {
        self.groups.iter().enumerate().find_map(|(group, of)| {
            let row = of.rows.iter().position(|(own, _)| *own == Some(lane))?;
            Some((group, row))
        })
    }

    fn kept(&self, lane: u32) -> u64 {
        let place = self.place(lane);
        place.map_or(0, |(group, row)| self.groups[group].rows[row].1)
    }

    /// Returns the states that a run of these rows reads, and its run options. Enlarges the buffers
    /// if the positions of these inputs do not fit.
    pub(super) fn make_room(
        &mut self,
        rows: &[NextRow],
        given: &[Tensor],
    ) -> Result<(&[DynValue], &RunOptions<HasSelectedOutputs>), EngineError> {
        let held: Result<Vec<u64>, EngineError> =
            rows.iter().map(|row| self.start_length(*row)).collect();
        let held = held?;
        let longest = held.iter().copied().max().unwrap_or(0);
        let need = longest.saturating_add(self.added(given));
        if need > self.max_positions {
            return Err(failed(format!(
                "the run needs {need} positions, but the maximum is {}",
                self.max_positions
            )));
        }
        let is_of = |group: &LaneGroup| {
            let lanes = group.rows.iter().map(|(lane, _)| *lane);
            lanes.eq(rows.iter().map(|row| Some(row.lane))) && need <= group.capacity
        };
        self.current = match self.groups.iter().position(is_of) {
            Some(place) => place,
            None => self.gather(rows, &held, need)?,
        };
        let group = &mut self.groups[self.current];
        for ((_, counts), held) in group.rows.iter_mut().zip(held) {
            *counts = held;
        }
        Ok((&group.states, &group.options))
    }

    /// Returns the number of positions from which a row starts.
    fn start_length(&self, row: NextRow) -> Result<u64, EngineError> {
        let kept = self.kept(row.lane);
        match row.from {
            RowStart::Nothing => Ok(0),
            RowStart::All => Ok(kept),
            RowStart::First(length) if length <= kept => Ok(length),
            RowStart::First(length) => Err(failed(format!(
                "cannot keep {length} positions: only {kept} exist"
            ))),
        }
    }

    /// Fails if lane 0 has fewer positions.
    pub(super) fn check_cut(&self, length: u64) -> Result<(), EngineError> {
        let from = RowStart::First(length);
        self.start_length(NextRow { lane: 0, from }).map(drop)
    }

    /// Creates a group of these rows, with `held` counted positions each and capacity for `need`.
    fn gather(&mut self, rows: &[NextRow], held: &[u64], need: u64) -> Result<usize, EngineError> {
        let capacity = need
            .next_power_of_two()
            .max(MIN_CAPACITY)
            .min(self.max_positions);
        let sources: Vec<(Option<LaneLocation>, u64)> = rows
            .iter()
            .zip(held)
            .map(|(row, held)| (self.place(row.lane), *held))
            .collect();
        let made = self.buffers(capacity, &sources);
        let (states, options) = made.map_err(|error| failure::of_running(&error))?;
        let lanes: Vec<u32> = rows.iter().map(|row| row.lane).collect();
        self.remove_lanes(|lane| lanes.contains(&lane));
        self.groups.push(LaneGroup {
            rows: lanes
                .into_iter()
                .map(Some)
                .zip(held.iter().copied())
                .collect(),
            capacity,
            states,
            options,
        });
        Ok(self.groups.len() - 1)
    }

    /// Removes lanes from their groups. A group without lanes is deleted.
    fn remove_lanes(&mut self, leaves: impl Fn(u32) -> bool) {
        for group in &mut self.groups {
            for (lane, _) in &mut group.rows {
                lane.take_if(|lane| leaves(*lane));
            }
        }
        self.groups
            .retain(|group| group.rows.iter().any(|(lane, _)| lane.is_some()));
    }

    /// Forgets lanes.
    pub(super) fn forget(&mut self, forgotten: &ForgottenLanes) {
        match forgotten {
            // A lane that starts anew reuses its buffers.
            ForgottenLanes::All if self.is_alone() => self.groups[0].rows[0].1 = 0,
            forgotten => self.remove_lanes(|lane| forgotten.has(lane)),
        }
    }

    /// Returns `true` if lane 0 is the only lane and has its own buffers.
    fn is_alone(&self) -> bool {
        matches!(self.groups.as_slice(), [group] if matches!(group.rows.as_slice(), [(Some(0), _)]))
    }

    /// Returns buffers with room for `capacity` positions of each row and copies of the counted
    /// ones, and run options that write into further buffers of that size.
    fn buffers(
        &self,
        capacity: u64,
        sources: &[(Option<LaneLocation>, u64)],
    ) -> ort::Result<(Vec<DynValue>, RunOptions<HasSelectedOutputs>)> {
        let mut selector = OutputSelector::default();
        let mut read = Vec::with_capacity(self.outputs.len());
        for (index, (name, sizes, dtype)) in self.outputs.iter().enumerate() {
            let mut sizes = *sizes;
            sizes[0] = sources.len() as u64;
            sizes[POSITION_AXIS] = capacity;
            let shape = sizes.map(|size| i64::try_from(size).unwrap_or(i64::MAX));
            let element = match dtype {
                DType::Float16 => TensorElementType::Float16,
                _ => TensorElementType::Float32,
            };
            let written = DynTensor::new(&Allocator::default(), element, shape)?;
            selector = selector.preallocate(name.as_str(), written);
            read.push(match dtype {
                DType::Float16 => self.copied::<half::f16>(index, shape, sources)?,
                _ => self.copied::<f32>(index, shape, sources)?,
            });
        }
        Ok((read, RunOptions::new()?.with_outputs(selector)))
    }

    /// Returns a buffer of this shape with copies of the counted positions.
    fn copied<T>(
        &self,
        index: usize,
        shape: [i64; 4],
        sources: &[(Option<LaneLocation>, u64)],
    ) -> ort::Result<DynValue>
    where
        T: PrimitiveTensorElementType + std::fmt::Debug + Copy,
    {
        let mut wider = Owned::<T>::new(&Allocator::default(), shape)?;
        if shape.contains(&0) {
            return Ok(wider.into_dyn());
        }
        let size = |size: i64| usize::try_from(size).unwrap_or(0);
        let width = size(shape[3]);
        // Elements per head and per row.
        let (head, row) = (
            size(shape[POSITION_AXIS]) * width,
            size(shape[1]) * size(shape[POSITION_AXIS]) * width,
        );
        let (_, to) = wider.extract_tensor_mut();
        for (to, (place, held)) in to.chunks_exact_mut(row).zip(sources) {
            let Some((group, from_row)) = place.filter(|_| *held > 0) else {
                continue;
            };
            let (from_shape, from) = self.groups[group].states[index].try_extract_tensor::<T>()?;
            let from_head = size(from_shape[POSITION_AXIS]) * width;
            let from = &from[from_row * size(shape[1]) * from_head..];
            let counts = usize::try_from(*held).unwrap_or(0) * width;
            for (from, to) in from.chunks_exact(from_head).zip(to.chunks_exact_mut(head)) {
                to[..counts].copy_from_slice(&from[..counts]);
            }
        }
        Ok(wider.into_dyn())
    }

    /// Records a successful run with these inputs and the states it returned.
    pub(super) fn record_run(&mut self, states: Vec<DynValue>, given: &[Tensor]) {
        let added = self.added(given);
        let group = &mut self.groups[self.current];
        group.states = states;
        for (_, held) in &mut group.rows {
            *held += added;
        }
    }
}

/// Returns `true` if only one attention node reads each past and it writes the matching present.
fn is_only_attention(request: &LoadRequest, carrying: &Carrying, signature: &Signature) -> bool {
    let Ok(source) = FileSource::open(&request.model) else {
        return false;
    };
    let pairs: Vec<(&str, &str)> = carrying
        .states
        .iter()
        .map(|state| {
            let input = &signature.inputs[state.input].name;
            let output = &signature.outputs[state.output].name;
            (input.as_str(), output.as_str())
        })
        .collect();
    let mut right = vec![0; pairs.len()];
    let mut uses = vec![0; pairs.len()];
    let walked = each_node(&Pages::new(&source), &mut |node: &OnnxNode| {
        for (index, (past, present)) in pairs.iter().enumerate() {
            let named =
                |names: &[String], name: &str| names.iter().filter(|other| *other == name).count();
            uses[index] += named(&node.inputs, past) + named(&node.inputs, present);
            let is_beside = |(input, output): &(usize, usize)| {
                node.inputs.get(*input).is_some_and(|name| name == past)
                    && node
                        .outputs
                        .get(*output)
                        .is_some_and(|name| name == present)
            };
            if node.operator == ATTENTION && PAST_PRESENT_PAIRS.iter().any(is_beside) {
                right[index] += 1;
            }
        }
    });
    let is_one = |(right, uses): (&usize, &usize)| *right == 1 && *uses == 1;
    walked.is_ok() && right.iter().zip(&uses).all(is_one)
}
