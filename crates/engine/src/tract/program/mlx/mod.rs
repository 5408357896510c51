//! Lowers graphs of the MLX delegate: instructions over slots, through the operator table.
//!
//! Reading a slot returns the value last written to it. The init chain depends only on constants.
//! Its instructions become part of the graph, and tract folds them. Half-precision values are
//! stored in float32, or rounded where they are computed ([`Rounding`]).

mod convolution;
mod elementwise;
mod gathered;
mod integer;
mod joined;
mod layer;
mod part;
mod place;
mod quantized;
mod reduce;
mod rope;
mod shape;

use std::collections::{BTreeSet, HashMap};

use tract_onnx::tract_core::internal::*;

use super::super::guard::{Failure, guarded};
use super::builder::Wire;
use super::calling::{CallArg, Caller};
use super::frame::{Frame, Slot};
use super::operators::promoted;
use super::weights::Weights;
use crate::Rounding;
use crate::tensor::DType;
use joined::FusionState;
use pkgtool_model::executorch::ConstantData;
use pkgtool_model::executorch::body::ByteRange;
use pkgtool_model::executorch::mlx::{self, Field, Graph, Instruction, Number};

/// Lowers an instruction and writes its output slots.
type LowerInstruction = fn(&mut Lowering<'_, '_, '_>, &Instruction) -> TractResult<()>;

/// Instructions by kind.
type InstructionTable = &'static [(&'static [&'static str], LowerInstruction)];

const INSTRUCTION_TABLES: [InstructionTable; 11] = [
    convolution::TABLE,
    elementwise::TABLE,
    gathered::TABLE,
    integer::TABLE,
    layer::TABLE,
    part::TABLE,
    place::TABLE,
    quantized::TABLE,
    reduce::TABLE,
    rope::TABLE,
    shape::TABLE,
];

fn find(kind: &str) -> Option<LowerInstruction> {
    let mut rows = INSTRUCTION_TABLES.into_iter().flatten();
    rows.find(|(names, _)| names.contains(&kind))
        .map(|(_, lower)| *lower)
}

/// A graph being lowered.
struct Lowering<'f, 'm, 'g> {
    frame: &'f mut Frame<'m>,
    graph: &'g Graph,
    rounding: Rounding,
    tensors: HashMap<u32, Wire>,
    values: HashMap<u32, Slot>,
    joined: FusionState,
}

fn read(weights: &Weights, payload: ByteRange) -> Result<Graph, Failure> {
    Graph::read(weights.program(), payload).map_err(|error| Failure::new(error.to_string()))
}

/// Returns the kinds of a payload's unsupported instructions.
pub(super) fn missing(weights: &Weights, payload: ByteRange) -> Result<BTreeSet<String>, Failure> {
    let graph = read(weights, payload)?;
    let kinds = graph.init.iter().chain(&graph.main).map(|node| node.kind);
    Ok(kinds
        .filter(|kind| find(kind).is_none())
        .map(str::to_owned)
        .collect())
}

/// Lowers the call of a payload's graph. The arguments are its inputs, then its outputs.
pub(super) fn lower(
    frame: &mut Frame<'_>,
    scope: &str,
    payload: ByteRange,
    args: &[usize],
) -> Result<(), Failure> {
    let graph = read(frame.weights, payload)?;
    let counts = (graph.inputs.len(), graph.outputs.len());
    let (inputs, outputs) = frame.split_call_args(scope, args, counts)?;
    let rounding = frame.rounding;
    let mut lowering = Lowering {
        frame,
        graph: &graph,
        rounding,
        tensors: HashMap::new(),
        values: HashMap::new(),
        joined: FusionState::default(),
    };
    guarded(|| lowering.inputs(inputs))?;
    let kept = guarded(|| lowering.kept_states(scope))?;
    for (at, node) in graph.init.iter().chain(&graph.main).enumerate() {
        let kind = node.kind;
        lowering
            .frame
            .builder
            .set_scope(format!("{scope} {kind} {at}"));
        guarded(|| {
            let lower = find(kind).context("unsupported instruction")?;
            lower(&mut lowering, node)
        })
        .map_err(|failure| failure.at(Some(format!("{kind} (instruction {at} of {scope})"))))?;
    }
    lowering.frame.builder.set_scope(scope.to_owned());
    for (slot, &value) in graph.outputs.iter().zip(outputs) {
        guarded(|| lowering.output(*slot, value))?;
    }
    for (slot, place, dtype) in kept {
        guarded(|| {
            let wire = lowering.slot(slot)?;
            let wire = lowering.frame.builder.cast(wire, dtype)?;
            lowering.frame.now.slots.insert(place, Slot::Tensor(wire));
            Ok(())
        })?;
    }
    Ok(())
}

impl Lowering<'_, '_, '_> {
    fn inputs(&mut self, args: &[usize]) -> TractResult<()> {
        for (slot, &value) in self.graph.inputs.iter().zip(args) {
            let given = self.frame.slot(value)?;
            match (slot, given) {
                (mlx::Slot::Tensor(slot), Slot::Tensor(wire)) => {
                    let (dtype, _) = self.declared(*slot)?;
                    let wire = self
                        .frame
                        .builder
                        .cast(wire, self.rounding.computed_dtype(dtype))?;
                    self.tensors.insert(*slot, wire);
                }
                (mlx::Slot::Value(slot), given) => {
                    self.values.insert(*slot, given);
                }
                _ => bail!("an input is not a tensor"),
            }
        }
        Ok(())
    }

    fn output(&mut self, slot: mlx::Slot, value: usize) -> TractResult<()> {
        match slot {
            mlx::Slot::Tensor(slot) => {
                let wire = self.slot(slot)?;
                self.frame.set_tensor(value, wire)
            }
            mlx::Slot::Value(slot) => {
                let given = self.values.get(&slot).cloned();
                let given = given.context("an output is not computed")?;
                self.frame.write(value, given);
                Ok(())
            }
        }
    }

    /// Returns the states kept between runs, before this run: slots, indices and dtypes.
    fn kept_states(&mut self, scope: &str) -> TractResult<Vec<(u32, usize, DType)>> {
        let mut kept = Vec::new();
        for &slot in &self.graph.persistent_slots {
            let (declared, shape) = self.declared(slot)?;
            let dtype = self.rounding.computed_dtype(declared);
            let name = self.graph.names.get(&slot);
            let stored = name.filter(|name| self.frame.weights.place(name).is_some());
            let initial = match stored {
                Some(name) => Some(self.stored(name, declared, &shape)?),
                None => None,
            };
            let name = format!("{scope} {slot}");
            let (place, wire) = self.frame.delegate_state(&name, (dtype, &shape), initial)?;
            self.tensors.insert(slot, wire);
            kept.push((slot, place, dtype));
        }
        Ok(kept)
    }

    /// Returns the declared dtype and sizes of a slot that is not temporary.
    fn declared(&self, slot: u32) -> TractResult<(DType, Vec<u64>)> {
        let tensor = self.graph.tensors.get(slot as usize);
        let tensor = tensor.with_context(|| format!("slot {slot} is not declared"))?;
        let dtype = tensor.element.dtype();
        let dtype = dtype
            .with_context(|| format!("invalid dtype of a tensor: {}", tensor.element.name()))?;
        let dims = tensor.dims.iter().map(|dim| dim.unwrap_or(0)).collect();
        Ok((dtype, dims))
    }

    fn stored(&self, name: &str, dtype: DType, shape: &[u64]) -> TractResult<Arc<Tensor>> {
        let read = self
            .frame
            .weights
            .constant(&ConstantData::Named(name.to_owned()), dtype, shape);
        read.map_err(|failure| format_err!("{}", failure.reason))
    }

    /// Returns the current content of a tensor slot.
    fn slot(&mut self, slot: u32) -> TractResult<Wire> {
        if let Some(wire) = self.tensors.get(&slot) {
            return Ok(*wire);
        }
        ensure!(
            slot < self.graph.constant_count,
            "slot {slot} is read before it is written"
        );
        let name = self.graph.names.get(&slot);
        let name = name.with_context(|| format!("constant {slot} has no name"))?;
        let (declared, shape) = self.declared(slot)?;
        let read = self.stored(name, declared, &shape)?;
        let dtype = self.rounding.computed_dtype(declared);
        let wire = self.frame.builder.constant(read, dtype)?;
        self.tensors.insert(slot, wire);
        Ok(wire)
    }

    /// Returns the tensor of a field.
    fn tensor(&mut self, node: &Instruction, name: &str) -> TractResult<Wire> {
        let wire = self.optional(node, name)?;
        wire.with_context(|| format!("missing field `{name}`"))
    }

    /// Returns the tensor of a field, if it is present.
    fn optional(&mut self, node: &Instruction, name: &str) -> TractResult<Option<Wire>> {
        match node.fields.get(name) {
            Some(Field::Tensor(slot)) => self.slot(*slot).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the tensors of a field.
    fn tensors(&mut self, node: &Instruction, name: &str) -> TractResult<Vec<Wire>> {
        match node.fields.get(name) {
            Some(Field::Tensors(slots)) => slots.iter().map(|slot| self.slot(*slot)).collect(),
            _ => bail!("missing field `{name}`"),
        }
    }

    fn number(&self, number: Number) -> TractResult<Slot> {
        Ok(match number {
            Number::Int(int) => Slot::Int(int.to_dim()),
            Number::Float(float) => Slot::Double(float),
            Number::Value(slot) => {
                let value = self.values.get(&slot).cloned();
                value.with_context(|| format!("value {slot} is read before it is written"))?
            }
            Number::Tensor(_) => bail!("expected a number, got a tensor"),
        })
    }

    /// Returns a size or another integer.
    fn dim(&self, node: &Instruction, name: &str) -> TractResult<TDim> {
        match node.fields.get(name) {
            Some(Field::Number(number)) => self.dim_of(*number),
            _ => bail!("missing field `{name}`"),
        }
    }

    fn dim_of(&self, number: Number) -> TractResult<TDim> {
        match self.number(number)? {
            Slot::Int(dim) => Ok(dim),
            _ => bail!("unsupported integer computed at run time"),
        }
    }

    /// Returns an integer.
    fn int(&self, node: &Instruction, name: &str) -> TractResult<i64> {
        Ok(self.dim(node, name)?.to_i64()?)
    }

    /// Returns a flag.
    fn flag(&self, node: &Instruction, name: &str) -> TractResult<bool> {
        Ok(self.int(node, name)? != 0)
    }

    /// Returns a number.
    #[expect(clippy::cast_precision_loss, reason = "such numbers are small")]
    fn float(&self, node: &Instruction, name: &str) -> TractResult<f64> {
        let Some(Field::Number(number)) = node.fields.get(name) else {
            bail!("missing field `{name}`");
        };
        match self.number(*number)? {
            Slot::Double(float) => Ok(float),
            Slot::Int(dim) => Ok(dim.to_i64()? as f64),
            _ => bail!("unsupported number computed at run time"),
        }
    }

    /// Returns the sizes of a list; a missing list is empty.
    fn dims(&self, node: &Instruction, name: &str) -> TractResult<Vec<TDim>> {
        match node.fields.get(name) {
            Some(Field::Numbers(numbers)) => numbers.iter().map(|n| self.dim_of(*n)).collect(),
            None => Ok(Vec::new()),
            Some(_) => bail!("field `{name}` is not a list"),
        }
    }

    /// Returns the integers of a list; a missing list is empty.
    fn ints(&self, node: &Instruction, name: &str) -> TractResult<Vec<i64>> {
        let dims = self.dims(node, name)?;
        dims.iter().map(|dim| Ok(dim.to_i64()?)).collect()
    }

    /// Returns the dtype for a code in a field, if it is present.
    fn dtype_field(&self, node: &Instruction, name: &str) -> TractResult<Option<DType>> {
        if !node.fields.contains_key(name) {
            return Ok(None);
        }
        let dtype = match self.int(node, name)? {
            0 => DType::Uint8,
            1 => DType::Int8,
            2 => DType::Int16,
            3 => DType::Int32,
            4 => DType::Int64,
            5 => DType::Float16,
            6 => DType::Float32,
            11 => DType::Bool,
            15 => DType::Bfloat16,
            27 => DType::Uint16,
            28 => DType::Uint32,
            29 => DType::Uint64,
            other => bail!("invalid dtype code {other}"),
        };
        Ok(Some(self.rounding.computed_dtype(dtype)))
    }

    /// Returns the context for calling operators of the table.
    fn caller(&mut self) -> Caller<'_, '_> {
        Caller {
            builder: &mut self.frame.builder,
            weights: self.frame.weights,
        }
    }

    /// Calls an operator of the table that returns one tensor.
    fn aten(&mut self, name: &str, args: Vec<CallArg>, dtype: DType) -> TractResult<Wire> {
        self.caller().tensor(name, args, dtype)
    }

    /// Writes the slot of the field `out`.
    fn write_output(&mut self, node: &Instruction, wire: Wire) -> TractResult<()> {
        match node.fields.get("out") {
            Some(Field::Tensor(slot)) => {
                self.tensors.insert(*slot, wire);
                Ok(())
            }
            _ => bail!("missing field `out`"),
        }
    }

    fn shape(&self, wire: Wire) -> TractResult<Vec<TDim>> {
        self.frame.builder.shape(wire.outlet)
    }
}

/// Returns the text of a field.
fn text<'n>(node: &'n Instruction, name: &str) -> TractResult<&'n str> {
    match node.fields.get(name) {
        Some(Field::Text(text)) => Ok(text),
        _ => bail!("missing field `{name}`"),
    }
}

/// Returns the dtype for floating-point computation; integers become float32.
fn float_dtype(dtype: DType) -> DType {
    if dtype.is_float() {
        dtype
    } else {
        DType::Float32
    }
}

/// Returns the dtype of the combination of two tensors.
fn joint_dtype(a: Wire, b: Wire) -> DType {
    promoted(a.dtype, b.dtype)
}

/// Returns the kinds of all supported instructions.
#[cfg(test)]
pub(super) fn names() -> Vec<&'static str> {
    let rows = INSTRUCTION_TABLES.into_iter().flatten();
    rows.flat_map(|(names, _)| names.iter().copied()).collect()
}

/// Returns the kinds of a payload's instructions.
#[cfg(test)]
pub(super) fn met(weights: &Weights, payload: ByteRange) -> Vec<String> {
    let graph = read(weights, payload).expect("fixtures can be read");
    let nodes = graph.init.iter().chain(&graph.main);
    nodes.map(|node| node.kind.to_owned()).collect()
}
