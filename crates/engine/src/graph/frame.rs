//! The state of a lowering: each value of a method and its current place in the graph.
//!
//! Instructions write values once or more; a [`FrameSlot`] holds the latest one. A value that is read
//! before it is written is a state. It becomes an input of the graph, and also an output if an
//! instruction writes it later. This module is independent of operators, delegates and the order of
//! instructions.

use std::collections::HashMap;
use std::sync::Arc;

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math::Add;

use super::builder::{Builder, Wire};
use super::datum_type;
use super::guard::{LibraryFailure, guarded};
use super::weights::ProgramWeights;
use crate::Rounding;
use crate::tensor::DType;
use pkgtool_model::ElementType;
use pkgtool_model::executorch::body::{BodyValue, MethodBody, TensorBody, TensorData};

/// The current content of one of the method's values.
#[derive(Debug, Clone)]
pub(crate) enum FrameSlot {
    /// No value.
    Null,
    /// An integer, which may depend on sizes known only at run time.
    Int(TDim),
    /// A floating-point number.
    Double(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Text(String),
    /// A tensor.
    Tensor(Wire),
    /// A number computed at run time.
    Number(RuntimeNumber),
}

/// A number computed at run time: a tensor without dimensions, plus an integer known earlier.
#[derive(Debug, Clone)]
pub(crate) struct RuntimeNumber {
    /// The tensor: int64, float64 or bool.
    pub(crate) wire: Wire,
    /// Added to the tensor, if it is an integer.
    pub(crate) offset: TDim,
}

/// A method that is being lowered.
pub(crate) struct MethodFrame<'a> {
    /// The graph under construction.
    pub(crate) builder: Builder,
    /// The method being lowered.
    pub(crate) method: &'a MethodBody,
    /// Constants of the program.
    pub(crate) weights: &'a ProgramWeights,
    /// Rounding of delegates' half-precision graphs.
    pub(crate) rounding: Rounding,
    /// Values written so far.
    pub(crate) now: CurrentValues,
    /// States: the index of each, its value before this run, and its value before the first run.
    pub(crate) states: Vec<(usize, Wire, Arc<Tensor>)>,
    constants: HashMap<usize, Wire>,
    /// Names of the states that delegates keep.
    own: Vec<String>,
}

/// Values written so far on one path through a method.
#[derive(Debug, Clone, Default)]
pub(crate) struct CurrentValues {
    /// Latest content of each written value.
    pub(crate) slots: HashMap<usize, FrameSlot>,
    /// Value last written at each memory location.
    places: HashMap<(u32, u64), usize>,
}

impl<'a> MethodFrame<'a> {
    /// Begins to lower a method.
    pub(crate) fn new(method: &'a MethodBody, weights: &'a ProgramWeights) -> Self {
        let mut frame = Self {
            builder: Builder::new(),
            method,
            weights,
            rounding: Rounding::default(),
            now: CurrentValues::default(),
            states: Vec::new(),
            constants: HashMap::new(),
            own: Vec::new(),
        };
        frame.register_states();
        frame
    }

    /// Returns the current content of a value.
    pub(crate) fn slot(&mut self, value: usize) -> TractResult<FrameSlot> {
        if let Some(slot) = self.now.slots.get(&value) {
            return Ok(slot.clone());
        }
        Ok(match &self.method.values[value] {
            BodyValue::Null => FrameSlot::Null,
            BodyValue::Int(value) => FrameSlot::Int(TDim::Val(*value)),
            BodyValue::Double(value) => FrameSlot::Double(*value),
            BodyValue::Bool(value) => FrameSlot::Bool(*value),
            BodyValue::String(text) => FrameSlot::Text(text.clone()),
            BodyValue::Tensor(_) => FrameSlot::Tensor(self.tensor(value)?),
            _ => bail!("expected a single value, got a list"),
        })
    }

    /// Returns a number computed at run time as one tensor.
    pub(crate) fn number_as_tensor(&mut self, number: &RuntimeNumber) -> TractResult<Wire> {
        if number.offset == TDim::Val(0) {
            return Ok(number.wire);
        }
        let plus = self.builder.size(&number.offset, number.wire.dtype)?;
        let outlet = self
            .builder
            .binary(Box::new(Add), number.wire.outlet, plus)?;
        Ok(Wire::new(outlet, number.wire.dtype))
    }

    /// Writes a value.
    pub(crate) fn write(&mut self, value: usize, slot: FrameSlot) {
        if let Some(place) = self.method.values[value]
            .tensor()
            .and_then(|tensor| tensor.memory)
        {
            self.now.places.insert(place, value);
        }
        self.now.slots.insert(value, slot);
    }

    /// Registers states at their memory locations before anything is written.
    fn register_states(&mut self) {
        for (value, body) in self.method.values.iter().enumerate() {
            if let Some(tensor) = body.tensor()
                && let (TensorData::State(_), Some(place)) = (&tensor.data, tensor.memory)
            {
                self.now.places.insert(place, value);
            }
        }
    }

    /// Returns a tensor that no instruction writes, as a view of the value at its memory location.
    fn view(&mut self, value: usize, tensor: &TensorBody) -> TractResult<Option<Wire>> {
        let place = tensor
            .memory
            .and_then(|place| self.now.places.get(&place).copied());
        let Some(base) = place.filter(|base| *base != value) else {
            return Ok(None);
        };
        let wire = self.tensor(base)?;
        let dtype = dtype_of(tensor)?;
        ensure!(
            wire.dtype == dtype,
            "value {value} is a view of value {base}, but their dtypes differ"
        );
        let shape: Vec<TDim> = tensor.sizes.iter().map(ToDim::to_dim).collect();
        let outlet = self.builder.reshape(wire.outlet, &shape)?;
        Ok(Some(Wire { outlet, dtype }))
    }

    /// Writes a tensor, cast to the dtype declared in the program.
    pub(crate) fn set_tensor(&mut self, value: usize, wire: Wire) -> TractResult<()> {
        let wire = match &self.method.values[value] {
            BodyValue::Tensor(tensor) => {
                let dtype = dtype_of(tensor)?;
                self.builder.cast(wire, dtype)?
            }
            _ => bail!("value {value} is not a tensor"),
        };
        self.write(value, FrameSlot::Tensor(wire));
        Ok(())
    }

    /// Returns the current content of a tensor value.
    pub(crate) fn tensor(&mut self, value: usize) -> TractResult<Wire> {
        match self.now.slots.get(&value) {
            Some(FrameSlot::Tensor(wire)) => return Ok(*wire),
            Some(_) => bail!("value {value} is not a tensor"),
            None => {}
        }
        if let Some(wire) = self.constants.get(&value) {
            return Ok(*wire);
        }
        let method = self.method;
        let Some(tensor) = method.values[value].tensor() else {
            bail!("value {value} is not a tensor");
        };
        if tensor.data == TensorData::None
            && let Some(wire) = self.view(value, tensor)?
        {
            return Ok(wire);
        }
        let dtype = dtype_of(tensor)?;
        let stored: Vec<u64> = tensor
            .dim_order
            .iter()
            .map(|&at| tensor.sizes[at])
            .collect();
        let weights = self.weights;
        let read = match &tensor.data {
            TensorData::Constant(bytes) | TensorData::State(bytes) => {
                weights.tensor(dtype, &stored, *bytes)
            }
            TensorData::External(name) => weights.named(name, dtype, &tensor.sizes),
            TensorData::None => zeros(dtype, &stored),
        };
        let read = read?;
        if matches!(tensor.data, TensorData::State(_) | TensorData::None) {
            let read = permuted(&read, &tensor.dim_order)?;
            return self.state(value, read, dtype);
        }
        let wire = self.builder.constant(read, dtype)?;
        let outlet = self
            .builder
            .transpose(wire.outlet, &memory_positions(&tensor.dim_order))?;
        let wire = Wire { outlet, dtype };
        self.constants.insert(value, wire);
        Ok(wire)
    }

    /// Returns the index and the current content of a tensor that a delegate keeps between runs.
    ///
    /// Each name is one state, at an index past the method's own values. It starts as `initial`, or
    /// else as zeros.
    pub(crate) fn delegate_state(
        &mut self,
        name: &str,
        (dtype, shape): (DType, &[u64]),
        initial: Option<Arc<Tensor>>,
    ) -> TractResult<(usize, Wire)> {
        let known = self.own.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            self.own.push(name.to_owned());
            self.own.len() - 1
        });
        let place = self.method.values.len() + at;
        if let Some(FrameSlot::Tensor(wire)) = self.now.slots.get(&place) {
            return Ok((place, *wire));
        }
        let initial = initial.map_or_else(|| zeros(dtype, shape), Ok);
        let initial = initial?;
        let wire = self.state(place, initial, dtype)?;
        Ok((place, wire))
    }

    fn state(&mut self, value: usize, initial: Arc<Tensor>, dtype: DType) -> TractResult<Wire> {
        if let Some((_, wire, _)) = self.states.iter().find(|(known, ..)| *known == value) {
            return Ok(*wire);
        }
        let shape: Vec<TDim> = initial.shape().iter().map(ToDim::to_dim).collect();
        let wire = self
            .builder
            .source(format!("state {value}"), dtype, &shape)?;
        self.states.push((value, wire, initial));
        Ok(wire)
    }

    /// Returns the dtype of a tensor value.
    pub(crate) fn dtype(&self, value: usize) -> TractResult<DType> {
        let Some(tensor) = self.method.values[value].tensor() else {
            bail!("value {value} is not a tensor");
        };
        Ok(dtype_of(tensor)?)
    }
}

/// Returns the dtype of a tensor.
pub(crate) fn dtype_of(tensor: &TensorBody) -> Result<DType, LibraryFailure> {
    dtype_of_element(&tensor.element)
}

/// Returns the dtype of elements of this type.
pub(crate) fn dtype_of_element(element: &ElementType) -> Result<DType, LibraryFailure> {
    element.dtype().ok_or_else(|| {
        LibraryFailure::new(format!("invalid dtype of a tensor: {}", element.name()))
    })
}

/// Returns the position in memory of each dimension of a tensor.
fn memory_positions(dim_order: &[usize]) -> Vec<usize> {
    let mut places = vec![0; dim_order.len()];
    for (place, &dim) in dim_order.iter().enumerate() {
        places[dim] = place;
    }
    places
}

fn permuted(tensor: &Arc<Tensor>, dim_order: &[usize]) -> TractResult<Arc<Tensor>> {
    let places = memory_positions(dim_order);
    if places.iter().copied().eq(0..places.len()) {
        return Ok(Arc::clone(tensor));
    }
    Ok(Arc::new(Tensor::clone(tensor).permute_axes(&places)?))
}

fn zeros(dtype: DType, shape: &[u64]) -> Result<Arc<Tensor>, LibraryFailure> {
    crate::tensor::byte_size(dtype, shape)
        .map_err(|error| LibraryFailure::new(error.to_string()))?;
    let shape = super::elements::sizes(shape)?;
    guarded(|| Ok(Arc::new(Tensor::zero_dt(datum_type(dtype), &shape)?)))
}
