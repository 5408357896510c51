//! Walking a method's instructions: what each value is in the graph.
//!
//! Values are written once or more; a [`Slot`] holds the latest. What is read before it was written is
//! a state: an input of the graph, and an output if it is written later. Branches are both computed
//! and one is chosen, since nothing here has effects.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::logic::Iff;
use tract_onnx::tract_core::ops::math::Add;

use super::super::guard::{Failure, guarded};
use super::builder::{Builder, Wire};
use super::operators;
use super::weights::Weights;
use super::{Lowered, Shapes, State, XNNPACK, datum_type, xnnpack};
use crate::model::executorch::body::xnnpack::Graph;
use crate::model::executorch::body::{BodyValue, Instruction, MethodBody, TensorBody, TensorData};
use crate::tensor::DType;

/// Most branches within each other: each doubles the work.
const MAX_BRANCHES: usize = 6;

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
    slots: HashMap<usize, Slot>,
    constants: HashMap<usize, Wire>,
    states: Vec<(usize, Wire, Arc<Tensor>)>,
    /// The value that was last written at each place of memory.
    written: HashMap<(u32, u64), usize>,
}

/// Lowers a method for inputs of these shapes.
pub(super) fn lower(
    method: &MethodBody,
    shapes: &Shapes,
    weights: &Weights,
) -> Result<Lowered, Failure> {
    let mut frame = Frame {
        builder: Builder::new(),
        method,
        weights,
        slots: HashMap::new(),
        constants: HashMap::new(),
        states: Vec::new(),
        written: HashMap::new(),
    };
    frame.place_states();
    let given = frame.inputs(shapes)?;
    frame.run(0, 0)?;
    frame.finish(given)
}

impl Frame<'_> {
    fn inputs(&mut self, shapes: &Shapes) -> Result<Vec<usize>, Failure> {
        let mut given = Vec::new();
        let inputs = self.method.inputs.iter().zip(shapes);
        for (place, (&value, shape)) in inputs.enumerate() {
            let BodyValue::Tensor(tensor) = &self.method.values[value] else {
                continue;
            };
            let dtype = dtype_of(tensor)?;
            let name = format!("input {place}");
            let wire = guarded(|| {
                let shape = shape.iter().map(|size| self.builder.dim(size));
                let shape = shape.collect::<TractResult<Vec<_>>>()?;
                self.builder.source(name, dtype, &shape)
            })?;
            self.write(value, Slot::Tensor(wire));
            given.push(place);
        }
        Ok(given)
    }

    /// Follows the instructions from `at` to the end.
    fn run(&mut self, at: usize, branches: usize) -> Result<(), Failure> {
        let method = self.method;
        let mut at = at;
        while let Some(instruction) = method.instructions.get(at) {
            let next = self.step(at, instruction, branches)?;
            let Some(next) = next else { return Ok(()) };
            if next <= at {
                return Err(Failure::new(format!(
                    "instruction {at} jumps back: loops are not supported"
                )));
            }
            at = next;
        }
        Ok(())
    }

    /// One instruction; the next one, unless both ways were followed to the end.
    fn step(
        &mut self,
        at: usize,
        instruction: &Instruction,
        branches: usize,
    ) -> Result<Option<usize>, Failure> {
        match instruction {
            Instruction::Kernel { operator, args } => {
                let name = &self.method.operators[*operator];
                self.builder.enter(format!("{name} (instruction {at})"));
                operators::call(self, name, args)
                    .map_err(|failure| failure.at(Some(format!("{name} (instruction {at})"))))?;
            }
            Instruction::Delegate { delegate, args } => {
                self.delegate(at, *delegate, args)?;
            }
            Instruction::Move { from, to } => {
                let slot = guarded(|| self.slot(*from))?;
                self.write(*to, slot);
            }
            Instruction::Free { .. } => {}
            Instruction::JumpFalse {
                condition,
                destination,
            } => return self.branch(at, *condition, *destination, branches),
        }
        Ok(Some(at + 1))
    }

    fn delegate(&mut self, at: usize, delegate: usize, args: &[usize]) -> Result<(), Failure> {
        let found = &self.method.delegates[delegate];
        if found.id != XNNPACK {
            return Err(Failure::new(format!(
                "the delegate {} has no portable form",
                found.id
            )));
        }
        let Some(payload) = found.payload else {
            return Err(Failure::new("the delegate has no payload"));
        };
        let scope = format!("{XNNPACK} (instruction {at})");
        let graph = Graph::read(self.weights.program(), payload)
            .map_err(|error| Failure::new(error.to_string()).at(Some(scope.clone())))?;
        xnnpack::lower(self, &scope, &graph, args).map_err(|failure| failure.at(Some(scope)))
    }

    fn branch(
        &mut self,
        at: usize,
        condition: usize,
        destination: usize,
        branches: usize,
    ) -> Result<Option<usize>, Failure> {
        let condition = match guarded(|| self.slot(condition))? {
            Slot::Bool(true) => return Ok(Some(at + 1)),
            Slot::Bool(false) => return Ok(Some(destination)),
            Slot::Tensor(wire) => wire,
            Slot::Number(number) => guarded(|| self.sum(&number))?,
            _ => {
                return Err(Failure::new(format!(
                    "instruction {at} jumps by what is no boolean"
                )));
            }
        };
        if branches >= MAX_BRANCHES {
            let reason = format!("more than {MAX_BRANCHES} branches depend on each other");
            return Err(Failure::new(reason));
        }
        let (before, places) = (self.slots.clone(), self.written.clone());
        self.run(at + 1, branches + 1)?;
        let then = std::mem::replace(&mut self.slots, before);
        self.written = places;
        self.run(destination, branches + 1)?;
        self.builder.enter(format!("branch (instruction {at})"));
        guarded(|| self.join(condition, &then))?;
        Ok(None)
    }

    /// What the method gives and keeps is that of one way or the other.
    fn join(&mut self, condition: Wire, then: &HashMap<usize, Slot>) -> TractResult<()> {
        let states: HashMap<usize, Wire> = self
            .states
            .iter()
            .map(|(value, wire, _)| (*value, *wire))
            .collect();
        let condition = self.builder.cast(condition, DType::Bool)?;
        let rank = self.builder.rank(condition.outlet)?;
        let axes: Vec<usize> = (0..rank).collect();
        let condition = self.builder.remove(condition.outlet, &axes)?;
        let outputs = self.method.outputs.iter().copied();
        let values: BTreeSet<usize> = outputs.chain(states.keys().copied()).collect();
        for value in values {
            // What a way does not write is what it was.
            let before = || states.get(&value).copied().map(Slot::Tensor);
            let yes = then.get(&value).cloned().or_else(before);
            let no = self.slots.get(&value).cloned().or_else(before);
            match (yes, no) {
                (Some(Slot::Tensor(yes)), Some(Slot::Tensor(no))) => {
                    if yes != no {
                        let chosen = self.choose(condition, yes, no)?;
                        self.slots.insert(value, Slot::Tensor(chosen));
                    }
                }
                (None, None) => {}
                _ => bail!("value {value} is written on one way only, or is no tensor"),
            }
        }
        Ok(())
    }

    fn choose(&mut self, condition: OutletId, yes: Wire, no: Wire) -> TractResult<Wire> {
        ensure!(yes.dtype == no.dtype, "branches differ in dtype");
        let [condition, a, b] = self.builder.same_rank([condition, yes.outlet, no.outlet])?;
        let outlet = self.builder.wire(Iff, &[condition, a, b])?;
        Ok(Wire {
            outlet,
            dtype: yes.dtype,
        })
    }

    /// What a value is now.
    pub(super) fn slot(&mut self, value: usize) -> TractResult<Slot> {
        if let Some(slot) = self.slots.get(&value) {
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
    pub(super) fn set(&mut self, value: usize, slot: Slot) {
        self.write(value, slot);
    }

    fn write(&mut self, value: usize, slot: Slot) {
        if let Some(place) = self.method.values[value]
            .tensor()
            .and_then(|tensor| tensor.memory)
        {
            self.written.insert(place, value);
        }
        self.slots.insert(value, slot);
    }

    /// States are in memory before anything is written.
    fn place_states(&mut self) {
        for (value, body) in self.method.values.iter().enumerate() {
            if let Some(tensor) = body.tensor()
                && let (TensorData::State(_), Some(place)) = (&tensor.data, tensor.memory)
            {
                self.written.insert(place, value);
            }
        }
    }

    /// A tensor that no instruction writes: a view of what is at its place in memory.
    fn view(&mut self, value: usize, tensor: &TensorBody) -> TractResult<Option<Wire>> {
        let place = tensor
            .memory
            .and_then(|place| self.written.get(&place).copied());
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
        match self.slots.get(&value) {
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

    fn finish(mut self, given: Vec<usize>) -> Result<Lowered, Failure> {
        self.builder.enter("outputs".to_owned());
        let mut outlets = Vec::new();
        let mut outputs = Vec::new();
        for value in self.method.outputs.clone() {
            let wire = guarded(|| self.output(value))?;
            outlets.push(wire.outlet);
            outputs.push(wire.dtype);
        }
        let mut states = Vec::new();
        for (value, source, initial) in std::mem::take(&mut self.states) {
            let last = match self.slots.get(&value) {
                Some(Slot::Tensor(wire)) => *wire,
                _ => source,
            };
            outlets.push(last.outlet);
            states.push(State { value, initial });
        }
        let mut model = self.builder.model;
        guarded(|| model.select_output_outlets(&outlets))?;
        Ok(Lowered {
            model,
            given,
            outputs,
            states,
        })
    }

    fn output(&mut self, value: usize) -> TractResult<Wire> {
        Ok(match self.slot(value)? {
            Slot::Tensor(wire) => wire,
            Slot::Number(number) => self.sum(&number)?,
            Slot::Int(value) => Wire {
                outlet: self.builder.size(&value, DType::Int64)?,
                dtype: DType::Int64,
            },
            Slot::Double(value) => self.builder.scalar(value, DType::Float64, 0)?,
            Slot::Bool(value) => self
                .builder
                .scalar(f64::from(u8::from(value)), DType::Bool, 0)?,
            Slot::Null | Slot::Text(_) => bail!("an output is no tensor and no number"),
        })
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
