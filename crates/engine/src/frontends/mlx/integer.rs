//! MLX instructions on integers outside of tensors: sizes, numbers read from tensors, and
//! arithmetic on them.

use tract_onnx::tract_core::internal::*;

use super::{InstructionField, InstructionTable, MlxInstruction, MlxLowering};
use crate::graph::builder::axis_of;
use crate::graph::calling::{CallArg, CallResult};
use crate::graph::frame::{FrameSlot, RuntimeNumber};
use crate::tensor::DType;

/// The instructions of this file.
pub(super) const TABLE: InstructionTable = &[
    (&["SymSize"], |lowering, node| {
        let a = lowering.tensor(node, "a")?;
        let shape = lowering.shape(a)?;
        let axis = axis_of(lowering.int(node, "dim")?, shape.len())?;
        value(lowering, node, FrameSlot::Int(shape[axis].clone()))
    }),
    (&["ItemInt"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let x = lowering.frame.builder.cast(x, DType::Int64)?;
        called(lowering, node, "aten::_local_scalar_dense", vec![x.into()])
    }),
    (&["AddInt"], |lowering, node| {
        binary(lowering, node, "executorch_prim::add.Scalar")
    }),
    (&["SubtractInt"], |lowering, node| {
        binary(lowering, node, "executorch_prim::sub.Scalar")
    }),
    (&["MultiplyInt"], |lowering, node| {
        binary(lowering, node, "executorch_prim::mul.Scalar")
    }),
    (&["FloorDivideInt"], |lowering, node| {
        divided(lowering, node, "executorch_prim::floordiv.Scalar", quotient)
    }),
    (&["ModInt"], |lowering, node| {
        divided(lowering, node, "executorch_prim::mod.Scalar", remainder)
    }),
];

impl MlxLowering<'_, '_> {
    /// Returns an integer as a tensor without dimensions.
    pub(super) fn as_tensor(&mut self, slot: &FrameSlot) -> TractResult<OutletId> {
        let wire = match slot {
            FrameSlot::Int(dim) => return self.frame.builder.size(dim, DType::Int64),
            FrameSlot::Number(number) => self.frame.number_as_tensor(number)?,
            _ => bail!("expected an integer"),
        };
        Ok(self.frame.builder.cast(wire, DType::Int64)?.outlet)
    }

    /// Returns the number in a field: a literal, or the content of a value slot.
    pub(super) fn given(&self, node: &MlxInstruction, name: &str) -> TractResult<FrameSlot> {
        match node.fields.get(name) {
            Some(InstructionField::Number(number)) => self.number(*number),
            _ => bail!("missing field `{name}`"),
        }
    }

    /// Returns a new symbol for a size known only at run time. The operator that outputs the tensor
    /// determines it.
    pub(super) fn runtime_size(&mut self) -> TDim {
        let symbols = &self.frame.builder.model.symbols;
        symbols.new_with_prefix("count").into()
    }
}

/// Returns the distance between two integers, if it is known before the run.
pub(super) fn distance(start: &FrameSlot, stop: &FrameSlot) -> Option<TDim> {
    match (start, stop) {
        (FrameSlot::Int(start), FrameSlot::Int(stop)) => Some((stop.clone() - start).reduce()),
        (FrameSlot::Number(start), FrameSlot::Number(stop)) if start.wire == stop.wire => {
            Some((stop.offset.clone() - &start.offset).reduce())
        }
        _ => None,
    }
}

fn binary(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    name: &str,
) -> TractResult<()> {
    let (a, b) = (lowering.given(node, "a")?, lowering.given(node, "b")?);
    let args = vec![argument(a)?, argument(b)?];
    called(lowering, node, name, args)
}

/// Divides sizes or numbers computed at run time, always rounding down.
fn divided(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    name: &str,
    divide: fn(i64, i64) -> Option<i64>,
) -> TractResult<()> {
    let (a, b) = (lowering.given(node, "a")?, lowering.given(node, "b")?);
    if let (FrameSlot::Int(_), FrameSlot::Int(by)) = (&a, &b)
        && by.to_i64().is_ok()
    {
        return called(lowering, node, name, vec![argument(a)?, argument(b)?]);
    }
    let inputs = [lowering.as_tensor(&a)?, lowering.as_tensor(&b)?];
    let dtype = DType::Int64;
    let builder = &mut lowering.frame.builder;
    let wire = builder.kernel("DivideIntegers", dtype, &[], &inputs, move |inputs| {
        let [a, b] = [&inputs[0], &inputs[1]].map(|input| input.cast_to_scalar::<i64>());
        let (a, b) = (a?, b?);
        let given = divide(a, b).with_context(|| format!("cannot divide {a} by {b}"))?;
        Ok(tensor0(given))
    })?;
    let plus = TDim::Val(0);
    value(
        lowering,
        node,
        FrameSlot::Number(RuntimeNumber { wire, offset: plus }),
    )
}

fn quotient(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    let inexact = quotient * b != a;
    Some(quotient - i64::from(inexact && (a < 0) != (b < 0)))
}

fn remainder(a: i64, b: i64) -> Option<i64> {
    Some(a - quotient(a, b)? * b)
}

pub(super) fn argument(slot: FrameSlot) -> TractResult<CallArg> {
    match slot {
        FrameSlot::Int(dim) => Ok(CallArg::Int(dim)),
        FrameSlot::Number(number) => Ok(CallArg::Number(number)),
        _ => bail!("expected an integer"),
    }
}

/// Calls an operator that returns a number, and writes it.
fn called(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    name: &str,
    args: Vec<CallArg>,
) -> TractResult<()> {
    let given = lowering.caller().call(name, args, &[CallResult::Number])?;
    let first = given
        .into_iter()
        .next()
        .context("the operator returned nothing")?;
    value(lowering, node, first)
}

/// Writes a value slot.
fn value(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    given: FrameSlot,
) -> TractResult<()> {
    match node.fields.get("out") {
        Some(InstructionField::Value(slot)) => {
            lowering.values.insert(*slot, given);
            Ok(())
        }
        _ => bail!("missing field `out`"),
    }
}
