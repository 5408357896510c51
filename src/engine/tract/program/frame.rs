//! The words that a lowering is told in: what each value of a method is in the graph at the moment.
//!
//! Values are written once or more; a [`Slot`] holds the latest. What is read before it was written is
//! a state: an input of the graph, and an output if it is written later. Knows no operator, no delegate
//! and no order of instructions.

use std::collections::HashMap;
use std::sync::Arc;

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math::Add;

use super::super::guard::{Failure, guarded};
use super::builder::{Builder, Wire};
use super::datum_type;
use super::weights::Weights;
use crate::engine::Rounding;
use crate::model::executorch::body::{BodyValue, MethodBody, TensorBody, TensorData};
use crate::tensor::DType;

/// A value of the method as it is now.
#[derive(Debug, Clone)]
pub(super) enum Slot {
    /// None.
    Null,
    /// An integer, perhaps of sizes that only a run knows.
    Int(TDim),
    /// A floating-point number.
    Double(f64),
    /// A boolean.
    Bool(bool),
    /// A text.
    Text(String),
    /// A tensor.
    Tensor(Wire),
    /// A number that only a run knows.
    Number(Number),
}

/// A number that only a run knows: a tensor without dimensions, plus something known.
#[derive(Debug, Clone)]
pub(super) struct Number {
    /// The tensor: int64, float64 or bool.
    pub(super) wire: Wire,
    /// What is to be added to an integer.
    pub(super) plus: TDim,
}

/// A method that is being lowered.
pub(super) struct Frame<'a> {
    /// The graph.
    pub(super) builder: Builder,
    /// The method.
    pub(super) method: &'a MethodBody,
    /// Its constants.
    pub(super) weights: &'a Weights,
    /// How delegates' graphs in half precision are computed.
    pub(super) rounding: Rounding,
    /// What was written so far.
    pub(super) now: Written,
    /// Values that are kept from run to run, as they are before this one, and before the first.
    pub(super) states: Vec<(usize, Wire, Arc<Tensor>)>,
    constants: HashMap<usize, Wire>,
    /// Names of what delegates keep.
    own: Vec<String>,
}

/// What was written so far on one way through a method.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    /// The latest of each value that was written.
    pub(super) slots: HashMap<usize, Slot>,
    /// The value that was last written at each place of memory.
    places: HashMap<(u32, u64), usize>,
}

impl<'a> Frame<'a> {
    /// Begins the call of a delegate that has so many inputs and outputs: the values among its arguments that
    /// are its inputs, and those that are its outputs.
    pub(super) fn begin_call<'v>(
        &mut self,
        scope: &str,
        args: &'v [usize],
        (inputs, outputs): (usize, usize),
    ) -> Result<(&'v [usize], &'v [usize]), Failure> {
        if args.len() != inputs + outputs {
            return Err(Failure::new(format!(
                "the delegate has {inputs} inputs and {outputs} outputs, its call {} arguments",
                args.len()
            )));
        }
        self.builder.enter(scope.to_owned());
        Ok(args.split_at(inputs))
    }

    /// A method of which nothing was lowered yet.
    pub(super) fn new(method: &'a MethodBody, weights: &'a Weights) -> Self {
        let mut frame = Self {
            builder: Builder::new(),
            method,
            weights,
            rounding: Rounding::default(),
            now: Written::default(),
            states: Vec::new(),
            constants: HashMap::new(),
            own: Vec::new(),
        };
        frame.place_states();
        frame
    }

    /// What a value is now.
    pub(super) fn slot(&mut self, value: usize) -> TractResult<Slot> {
        if let Some(slot) = self.now.slots.get(&value) {
            return Ok(slot.clone());
        }
        Ok(match &self.method.values[value] {
            BodyValue::Null => Slot::Null,
            BodyValue::Int(value) => Slot::Int(TDim::Val(*value)),
            BodyValue::Double(value) => Slot::Double(*value),
            BodyValue::Bool(value) => Slot::Bool(*value),
            BodyValue::String(text) => Slot::Text(text.clone()),
            BodyValue::Tensor(_) => Slot::Tensor(self.tensor(value)?),
            _ => bail!("a list stands where a single value should"),
        })
    }

    /// A number that only a run knows as one tensor.
    pub(super) fn sum(&mut self, number: &Number) -> TractResult<Wire> {
        if number.plus == TDim::Val(0) {
            return Ok(number.wire);
        }
        let plus = self.builder.size(&number.plus, number.wire.dtype)?;
        let outlet = self
            .builder
            .binary(Box::new(Add), number.wire.outlet, plus)?;
        Ok(Wire {
            outlet,
            dtype: number.wire.dtype,
        })
    }

    /// Writes a value.
    pub(super) fn write(&mut self, value: usize, slot: Slot) {
        if let Some(place) = self.method.values[value]
            .tensor()
            .and_then(|tensor| tensor.memory)
        {
            self.now.places.insert(place, value);
        }
        self.now.slots.insert(value, slot);
    }

    /// States are in memory before anything is written.
    fn place_states(&mut self) {
        for (value, body) in self.method.values.iter().enumerate() {
            if let Some(tensor) = body.tensor()
                && let (TensorData::State(_), Some(place)) = (&tensor.data, tensor.memory)
            {
                self.now.places.insert(place, value);
            }
        }
    }

    /// A tensor that no instruction writes: a view of what is at its place in memory.
    fn view(&mut self, value: usize, tensor: &TensorBody) -> TractResult<Option<Wire>> {
        let place = tensor
            .memory
            .and_then(|place| self.now.places.get(&place).copied());
        let Some(base) = place.filter(|base| *base != value) else {
            return Ok(None);
        };
        let wire = self.tensor(base)?;
        let dtype = dtype_of(tensor).map_err(|failure| format_err!("{}", failure.reason))?;
        ensure!(
            wire.dtype == dtype,
            "value {value} is a view of value {base}, which is of another dtype"
        );
        let shape: Vec<TDim> = tensor.sizes.iter().map(ToDim::to_dim).collect();
        let outlet = self.builder.reshape(wire.outlet, &shape)?;
        Ok(Some(Wire { outlet, dtype }))
    }

    /// Writes a tensor, as the dtype the program gives it.
    pub(super) fn set_tensor(&mut self, value: usize, wire: Wire) -> TractResult<()> {
        let wire = match &self.method.values[value] {
            BodyValue::Tensor(tensor) => {
                let dtype =
                    dtype_of(tensor).map_err(|failure| format_err!("{}", failure.reason))?;
                self.builder.cast(wire, dtype)?
            }
            _ => bail!("value {value} is no tensor"),
        };
        self.write(value, Slot::Tensor(wire));
        Ok(())
    }

    /// A tensor as it is now.
    pub(super) fn tensor(&mut self, value: usize) -> TractResult<Wire> {
        match self.now.slots.get(&value) {
            Some(Slot::Tensor(wire)) => return Ok(*wire),
            Some(_) => bail!("value {value} is no tensor"),
            None => {}
        }
        if let Some(wire) = self.constants.get(&value) {
            return Ok(*wire);
        }
        let method = self.method;
        let Some(tensor) = method.values[value].tensor() else {
            bail!("value {value} is no tensor");
        };
        if tensor.data == TensorData::None
            && let Some(wire) = self.view(value, tensor)?
        {
            return Ok(wire);
        }
        let told = |failure: Failure| format_err!("{}", failure.reason);
        let dtype = dtype_of(tensor).map_err(told)?;
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
        let read = read.map_err(told)?;
        if matches!(tensor.data, TensorData::State(_) | TensorData::None) {
            let read = permuted(&read, &tensor.dim_order)?;
            return self.state(value, read, dtype);
        }
        let wire = self.builder.constant(read, dtype)?;
        let outlet = self
            .builder
            .transpose(wire.outlet, &logical(&tensor.dim_order))?;
        let wire = Wire { outlet, dtype };
        self.constants.insert(value, wire);
        Ok(wire)
    }

    /// A tensor that a delegate keeps from run to run, by a name that no other has: the place it is kept at,
    /// which is none of the method's, and what it holds now. It begins as `initial`, or else as zero.
    pub(super) fn own_state(
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
        if let Some(Slot::Tensor(wire)) = self.now.slots.get(&place) {
            return Ok((place, *wire));
        }
        let initial = initial.map_or_else(|| zeros(dtype, shape), Ok);
        let initial = initial.map_err(|failure| format_err!("{}", failure.reason))?;
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

    /// The dtype of a value that is a tensor.
    pub(super) fn dtype(&self, value: usize) -> TractResult<DType> {
        let Some(tensor) = self.method.values[value].tensor() else {
            bail!("value {value} is no tensor");
        };
        dtype_of(tensor).map_err(|failure| format_err!("{}", failure.reason))
    }
}

/// The dtype of a tensor.
pub(super) fn dtype_of(tensor: &TensorBody) -> Result<DType, Failure> {
    DType::from_element(&tensor.element).ok_or_else(|| {
        Failure::new(format!(
            "there are no {} tensors here",
            tensor.element.name()
        ))
    })
}

/// For each dimension of a tensor its place in memory.
fn logical(dim_order: &[usize]) -> Vec<usize> {
    let mut places = vec![0; dim_order.len()];
    for (place, &dim) in dim_order.iter().enumerate() {
        places[dim] = place;
    }
    places
}

fn permuted(tensor: &Arc<Tensor>, dim_order: &[usize]) -> TractResult<Arc<Tensor>> {
    let places = logical(dim_order);
    if places.iter().copied().eq(0..places.len()) {
        return Ok(Arc::clone(tensor));
    }
    Ok(Arc::new(Tensor::clone(tensor).permute_axes(&places)?))
}

fn zeros(dtype: DType, shape: &[u64]) -> Result<Arc<Tensor>, Failure> {
    crate::tensor::byte_size(dtype, shape).map_err(|error| Failure::new(error.to_string()))?;
    let shape = super::super::elements::sizes(shape)?;
    guarded(|| Ok(Arc::new(Tensor::zero_dt(datum_type(dtype), &shape)?)))
}
