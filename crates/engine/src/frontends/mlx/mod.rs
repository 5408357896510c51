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

use super::payload::{PayloadCall, lower_nodes};
use crate::Rounding;
use crate::graph::builder::{Builder, Wire};
use crate::graph::calling::{CallArg, CallContext};
use crate::graph::frame::{FrameSlot, MethodFrame, dtype_of_element};
use crate::graph::guard::{LibraryFailure, guarded};
use crate::graph::operators::promoted;
use crate::graph::table::{NodeTable, find};
use crate::graph::weights::ProgramWeights;
use crate::tensor::DType;
use joined::FusionState;
use pkgtool_model::executorch::ConstantData;
use pkgtool_model::executorch::body::ByteRange;
use pkgtool_model::executorch::mlx::{self, InstructionField, MlxGraph, MlxInstruction, Number};

/// Lowers an instruction and writes its output slots.
type LowerInstruction = fn(&mut MlxLowering<'_, '_>, &MlxInstruction) -> TractResult<()>;

/// Instructions by kind.
type InstructionTable = NodeTable<LowerInstruction>;

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

/// A graph being lowered.
struct MlxLowering<'f, 'm> {
    frame: &'f mut MethodFrame<'m>,
    graph: &'f MlxGraph,
    rounding: Rounding,
    tensors: HashMap<u32, Wire>,
    values: HashMap<u32, FrameSlot>,
    joined: FusionState,
}

fn read(weights: &ProgramWeights, payload: ByteRange) -> Result<MlxGraph, LibraryFailure> {
    MlxGraph::read(weights.program(), payload)
        .map_err(|error| LibraryFailure::new(error.to_string()))
}

/// Returns the kinds of a payload's unsupported instructions.
pub(crate) fn missing(
    weights: &ProgramWeights,
    payload: ByteRange,
) -> Result<BTreeSet<String>, LibraryFailure> {
    let graph = read(weights, payload)?;
    let kinds = graph.init.iter().chain(&graph.main).map(|node| node.kind);
    Ok(kinds
        .filter(|kind| find(&INSTRUCTION_TABLES, kind).is_none())
        .map(str::to_owned)
        .collect())
}

/// Lowers the call of a payload's graph.
pub(crate) fn lower(
    frame: &mut MethodFrame<'_>,
    call: PayloadCall<'_>,
) -> Result<(), LibraryFailure> {
    let scope = call.scope;
    let graph = read(frame.weights, call.payload)?;
    let (inputs, outputs) = call.split(frame, graph.inputs.len(), graph.outputs.len())?;
    let mut lowering = MlxLowering {
        rounding: frame.rounding,
        frame,
        graph: &graph,
        tensors: HashMap::new(),
        values: HashMap::new(),
        joined: FusionState::default(),
    };
    guarded(|| lowering.inputs(inputs))?;
    let kept = guarded(|| lowering.kept_states(scope))?;
    let nodes = graph.init.iter().chain(&graph.main);
    let nodes = nodes.map(|node| (node.kind, node));
    lower_nodes(
        &mut lowering,
        MlxLowering::builder,
        (scope, "instruction"),
        nodes,
        |lowering, node| {
            let lower = find(&INSTRUCTION_TABLES, node.kind).context("unsupported instruction")?;
            lower(lowering, node)
        },
    )?;
    lowering.frame.builder.set_scope(scope.to_owned());
    for (slot, &value) in graph.outputs.iter().zip(outputs) {
        guarded(|| lowering.output(*slot, value))?;
    }
    for (slot, place, dtype) in kept {
        guarded(|| {
            let wire = lowering.slot(slot)?;
            let wire = lowering.frame.builder.cast(wire, dtype)?;
            lowering
                .frame
                .now
                .slots
                .insert(place, FrameSlot::Tensor(wire));
            Ok(())
        })?;
    }
    Ok(())
}

impl MlxLowering<'_, '_> {
    fn inputs(&mut self, args: &[usize]) -> TractResult<()> {
        for (slot, &value) in self.graph.inputs.iter().zip(args) {
            let given = self.frame.slot(value)?;
            match (slot, given) {
                (mlx::MlxSlot::Tensor(slot), FrameSlot::Tensor(wire)) => {
                    let (dtype, _) = self.declared(*slot)?;
                    let dtype = self.rounding.computed_dtype(dtype);
                    let wire = self.builder().cast(wire, dtype)?;
                    self.tensors.insert(*slot, wire);
                }
                (mlx::MlxSlot::Value(slot), given) => {
                    self.values.insert(*slot, given);
                }
                _ => bail!("an input is not a tensor"),
            }
        }
        Ok(())
    }

    fn output(&mut self, slot: mlx::MlxSlot, value: usize) -> TractResult<()> {
        match slot {
            mlx::MlxSlot::Tensor(slot) => {
                let wire = self.slot(slot)?;
                self.frame.set_tensor(value, wire)
            }
            mlx::MlxSlot::Value(slot) => {
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
        let dtype = dtype_of_element(&tensor.element)?;
        let dims = tensor.dims.iter().map(|dim| dim.unwrap_or(0)).collect();
        Ok((dtype, dims))
    }

    fn stored(&self, name: &str, dtype: DType, shape: &[u64]) -> TractResult<Arc<Tensor>> {
        let read = self
            .frame
            .weights
            .constant(&ConstantData::Named(name.to_owned()), dtype, shape);
        Ok(read?)
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
    fn tensor(&mut self, node: &MlxInstruction, name: &str) -> TractResult<Wire> {
        let wire = self.optional(node, name)?;
        wire.with_context(|| format!("missing field `{name}`"))
    }

    /// Returns the tensor of a field, if it is present.
    fn optional(&mut self, node: &MlxInstruction, name: &str) -> TractResult<Option<Wire>> {
        match node.fields.get(name) {
            Some(InstructionField::Tensor(slot)) => self.slot(*slot).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the tensors of a field.
    fn tensors(&mut self, node: &MlxInstruction, name: &str) -> TractResult<Vec<Wire>> {
        match node.fields.get(name) {
            Some(InstructionField::Tensors(slots)) => {
                slots.iter().map(|slot| self.slot(*slot)).collect()
            }
            _ => bail!("missing field `{name}`"),
        }
    }

    fn number(&self, number: Number) -> TractResult<FrameSlot> {
        Ok(match number {
            Number::Int(int) => FrameSlot::Int(int.to_dim()),
            Number::Float(float) => FrameSlot::Double(float),
            Number::Value(slot) => {
                let value = self.values.get(&slot).cloned();
                value.with_context(|| format!("value {slot} is read before it is written"))?
            }
            Number::Tensor(_) => bail!("expected a number, got a tensor"),
        })
    }

    /// Returns a size or another integer.
    fn dim(&self, node: &MlxInstruction, name: &str) -> TractResult<TDim> {
        match node.fields.get(name) {
            Some(InstructionField::Number(number)) => self.dim_of(*number),
            _ => bail!("missing field `{name}`"),
        }
    }

    fn dim_of(&self, number: Number) -> TractResult<TDim> {
        match self.number(number)? {
            FrameSlot::Int(dim) => Ok(dim),
            _ => bail!("unsupported integer computed at run time"),
        }
    }

    /// Returns an integer.
    fn int(&self, node: &MlxInstruction, name: &str) -> TractResult<i64> {
        Ok(self.dim(node, name)?.to_i64()?)
    }

    /// Returns a flag.
    fn flag(&self, node: &MlxInstruction, name: &str) -> TractResult<bool> {
        Ok(self.int(node, name)? != 0)
    }

    /// Returns a number.
    #[expect(clippy::cast_precision_loss, reason = "such numbers are small")]
    fn float(&self, node: &MlxInstruction, name: &str) -> TractResult<f64> {
        let Some(InstructionField::Number(number)) = node.fields.get(name) else {
            bail!("missing field `{name}`");
        };
        match self.number(*number)? {
            FrameSlot::Double(float) => Ok(float),
            FrameSlot::Int(dim) => Ok(dim.to_i64()? as f64),
            _ => bail!("unsupported number computed at run time"),
        }
    }

    /// Returns the sizes of a list; a missing list is empty.
    fn dims(&self, node: &MlxInstruction, name: &str) -> TractResult<Vec<TDim>> {
        match node.fields.get(name) {
            Some(InstructionField::Numbers(numbers)) => {
                numbers.iter().map(|n| self.dim_of(*n)).collect()
            }
            None => Ok(Vec::new()),
            Some(_) => bail!("field `{name}` is not a list"),
        }
    }

    /// Returns the integers of a list; a missing list is empty.
    fn ints(&self, node: &MlxInstruction, name: &str) -> TractResult<Vec<i64>> {
        let dims = self.dims(node, name)?;
        dims.iter().map(|dim| Ok(dim.to_i64()?)).collect()
    }

    /// Returns the dtype for a code in a field, if it is present.
    fn dtype_field(&self, node: &MlxInstruction, name: &str) -> TractResult<Option<DType>> {
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

    /// Returns the graph under construction.
    fn builder(&mut self) -> &mut Builder {
        &mut self.frame.builder
    }

    /// Returns the context for calling operators of the table.
    fn caller(&mut self) -> CallContext<'_, '_> {
        CallContext {
            builder: &mut self.frame.builder,
            weights: self.frame.weights,
        }
    }

    /// Calls an operator of the table that returns one tensor.
    fn aten(&mut self, name: &str, args: Vec<CallArg>, dtype: DType) -> TractResult<Wire> {
        self.caller().tensor(name, args, dtype)
    }

    /// Calls an operator of the table whose tensor is the result of an instruction.
    fn call(
        &mut self,
        node: &MlxInstruction,
        name: &str,
        args: Vec<CallArg>,
        dtype: DType,
    ) -> TractResult<()> {
        let wire = self.aten(name, args, dtype)?;
        self.write_output(node, wire)
    }

    /// Returns the tensors of the fields `a` and `b`.
    fn pair(&mut self, node: &MlxInstruction) -> TractResult<[Wire; 2]> {
        Ok([self.tensor(node, "a")?, self.tensor(node, "b")?])
    }

    /// Writes the slot of the field `out`.
    fn write_output(&mut self, node: &MlxInstruction, wire: Wire) -> TractResult<()> {
        match node.fields.get("out") {
            Some(InstructionField::Tensor(slot)) => {
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
fn text<'n>(node: &'n MlxInstruction, name: &str) -> TractResult<&'n str> {
    match node.fields.get(name) {
        Some(InstructionField::Text(text)) => Ok(text),
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
pub(crate) fn names() -> Vec<&'static str> {
    crate::graph::table::kinds(&INSTRUCTION_TABLES)
}

/// Returns the kinds of a payload's instructions.
#[cfg(test)]
pub(crate) fn met(weights: &ProgramWeights, payload: ByteRange) -> Vec<String> {
    let graph = read(weights, payload).expect("fixtures can be read");
    let nodes = graph.init.iter().chain(&graph.main);
    nodes.map(|node| node.kind.to_owned()).collect()
}
