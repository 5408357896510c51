//! Keys and values of attention in buffers that are past and present in one.
//!
//! `GroupQueryAttention` (<https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>)
//! writes the keys and values of a run behind those before it, into the buffer that it has read them from,
//! if both are one: nothing that it holds already is copied. How much of the buffer counts is told to it by
//! other inputs. The library gives a second handle of a value only as an output of a run, so a run that
//! finds its buffers too small reads copies of a larger size and writes into new ones; the runs after it
//! read what they write.
//!
//! Invariant: positions below `held` are what runs have left, whatever is behind them.

use ort::memory::Allocator;
use ort::session::{HasSelectedOutputs, OutputSelector, RunOptions};
use ort::value::{
    DynTensor, DynValue, PrimitiveTensorElementType, Tensor as Owned, TensorElementType,
};

use super::failure;
use super::output::failed;
use crate::engine::{Along, Carrying, EngineError, LoadRequest, Provider};
use crate::model::onnx::{Node, each_node};
use crate::source::{FileSource, Pages};
use crate::tensor::{DType, Signature, Tensor};

/// The operator.
const ATTENTION: &str = "com.microsoft::GroupQueryAttention";
/// Its inputs `past_key` and `past_value`, and the outputs beside them.
const PASTS: [(usize, usize); 2] = [(3, 1), (4, 2)];
/// The axis of positions: keys and values are [batch, heads, positions, size].
const AXIS: usize = 2;
/// Positions that buffers have at least, where the model holds as many.
const LEAST: u64 = 256;

/// The buffers of a session.
pub(super) struct Shared {
    /// Names of the outputs, with the sizes around the positions and the dtype.
    outputs: Vec<(String, [u64; 4], DType)>,
    /// The place among the given inputs, and the axis, that tell how many positions a run adds.
    added: Along,
    /// Most positions.
    most: u64,
    /// Positions that the buffers have.
    capacity: u64,
    /// Positions that count.
    held: u64,
    /// With the buffers as outputs.
    options: Option<RunOptions<HasSelectedOutputs>>,
}

impl Shared {
    /// The buffers for what a model carries, if they may be past and present in one.
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
                let fits = state.axis == Some(AXIS) && sizes[AXIS] == 0;
                let has_code = matches!(spec.dtype, DType::Float32 | DType::Float16);
                (fits && has_code).then(|| (spec.name.clone(), sizes, spec.dtype))
            })
            .collect();
        let outputs = outputs.filter(|outputs| !outputs.is_empty())?;
        let given = carrying.given(signature);
        let place = given.iter().position(|place| *place == added.place)?;
        is_only_attention(request, carrying, signature).then_some(Self {
            outputs,
            added: Along { place, ..added },
            most,
            capacity: 0,
            held: 0,
            options: None,
        })
    }

    /// What the next run is to be asked with.
    pub(super) fn options(&self) -> Option<&RunOptions<HasSelectedOutputs>> {
        self.options.as_ref()
    }

    fn added(&self, given: &[Tensor]) -> u64 {
        let shape = given.get(self.added.place).map(Tensor::shape);
        let size = shape.and_then(|shape| shape.get(self.added.axis));
        size.copied().unwrap_or(0)
    }

    /// Makes buffers that the positions of these inputs fit, too. `states` are what the run reads.
    pub(super) fn make_room(
        &mut self,
        given: &[Tensor],
        states: &mut Vec<DynValue>,
    ) -> Result<(), EngineError> {
        let need = self.held.saturating_add(self.added(given));
        if need > self.most {
            return Err(failed(format!(
                "it would hold {need} positions, and holds {} at most",
                self.most
            )));
        }
        if need <= self.capacity {
            return Ok(());
        }
        let capacity = need.next_power_of_two().max(LEAST).min(self.most);
        let made = self.larger(capacity, states);
        let (read, options) = made.map_err(|error| failure::of_running(&error))?;
        *states = read;
        self.options = Some(options);
        self.capacity = capacity;
        Ok(())
    }

    /// Copies of the states with room for `capacity` positions, and what lets a run write into others of
    /// that size.
    fn larger(
        &self,
        capacity: u64,
        states: &[DynValue],
    ) -> ort::Result<(Vec<DynValue>, RunOptions<HasSelectedOutputs>)> {
        let mut selector = OutputSelector::default();
        let mut read = Vec::with_capacity(states.len());
        for ((name, sizes, dtype), state) in self.outputs.iter().zip(states) {
            let mut sizes = *sizes;
            sizes[AXIS] = capacity;
            let shape = sizes.map(|size| i64::try_from(size).unwrap_or(i64::MAX));
            let element = match dtype {
                DType::Float16 => TensorElementType::Float16,
                _ => TensorElementType::Float32,
            };
            let written = DynTensor::new(&Allocator::default(), element, shape)?;
            selector = selector.preallocate(name.as_str(), written);
            read.push(match dtype {
                DType::Float16 => self.copied::<half::f16>(state, shape)?,
                _ => self.copied::<f32>(state, shape)?,
            });
        }
        Ok((read, RunOptions::new()?.with_outputs(selector)))
    }

    /// A copy of the positions that count in a buffer of this shape.
    fn copied<T>(&self, state: &DynValue, shape: [i64; 4]) -> ort::Result<DynValue>
    where
        T: PrimitiveTensorElementType + std::fmt::Debug + Copy,
    {
        let mut wider = Owned::<T>::new(&Allocator::default(), shape)?;
        if self.held > 0 && !shape.contains(&0) {
            let (from_shape, from) = state.try_extract_tensor::<T>()?;
            let (_, to) = wider.extract_tensor_mut();
            let size = |size: i64| usize::try_from(size).unwrap_or(0);
            let width = size(shape[3]);
            let (old, new) = (size(from_shape[AXIS]) * width, size(shape[AXIS]) * width);
            let held = usize::try_from(self.held).unwrap_or(0) * width;
            for (from, to) in from.chunks_exact(old).zip(to.chunks_exact_mut(new)) {
                to[..held].copy_from_slice(&from[..held]);
            }
        }
        Ok(wider.into_dyn())
    }

    /// A run with these inputs has succeeded.
    pub(super) fn ran(&mut self, given: &[Tensor]) {
        self.held += self.added(given);
    }

    /// Lets only the first positions count.
    pub(super) fn cut(&mut self, length: u64) -> Result<(), EngineError> {
        if length > self.held {
            let held = self.held;
            return Err(failed(format!(
                "there are no {length} positions to keep, but {held}"
            )));
        }
        self.held = length;
        Ok(())
    }
}

/// Whether every past is read by one attention node and nothing else, which writes the present beside it.
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
    let walked = each_node(&Pages::new(&source), &mut |node: &Node| {
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
            if node.operator == ATTENTION && PASTS.iter().any(is_beside) {
                right[index] += 1;
            }
        }
    });
    let is_one = |(right, uses): (&usize, &usize)| *right == 1 && *uses == 1;
    walked.is_ok() && right.iter().zip(&uses).all(is_one)
}
