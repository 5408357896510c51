//! Lowers slices, splits and selection of single positions.

use tract_onnx::tract_core::internal::*;

use super::super::builder::Wire;
use super::super::frame::{FrameSlot, RuntimeNumber};
use super::call::{LoweringTable, OperatorCall};
use super::shape::set_only_output;
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::split_copy.Tensor_out"], split),
    (&["aten::split_with_sizes_copy.out"], split_with_sizes),
    (&["aten::unbind_copy.int_out"], unbind),
    (&["aten::slice_copy.Tensor_out"], slice),
    (&["aten::select_copy.int_out"], select),
    (&["aten::narrow_copy.out"], narrow),
];

/// Splits a tensor into consecutive parts of these sizes.
fn parts(
    call: &mut OperatorCall<'_, '_>,
    input: Wire,
    axis: usize,
    sizes: &[TDim],
) -> TractResult<()> {
    let mut start = TDim::Val(0);
    let mut wires = Vec::new();
    for size in sizes {
        let end = (start.clone() + size).reduce();
        let outlet = call
            .builder()
            .slice(input.outlet, axis, start, end.clone())?;
        wires.push(Wire::new(outlet, input.dtype));
        start = end;
    }
    let out = call.out();
    call.set_list_output(out, wires)
}

fn split(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let axis = call.axis(2, shape.len())?;
    let (size, all) = (call.int(1)?, shape[axis].to_i64()?);
    ensure!(
        size > 0,
        "invalid size {size} of parts: expected a positive integer"
    );
    let mut sizes = Vec::new();
    let mut left = all;
    while left > 0 {
        sizes.push(size.min(left).to_dim());
        left -= size;
    }
    parts(call, input, axis, &sizes)
}

fn split_with_sizes(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    let axis = call.axis(2, rank)?;
    let sizes = call.dims(1)?;
    parts(call, input, axis, &sizes)
}

fn unbind(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let axis = call.axis(1, shape.len())?;
    let mut wires = Vec::new();
    for at in 0..shape[axis].to_i64()? {
        let outlet = call.frame.builder.slice(input.outlet, axis, at, at + 1)?;
        let outlet = call.wire(AxisOp::Rm(axis), &[outlet])?;
        wires.push(Wire::new(outlet, input.dtype));
    }
    let out = call.out();
    call.set_list_output(out, wires)
}

/// Resolves a slice bound: negative values count from the end, the result is clamped to the
/// dimension.
fn bound(value: TDim, size: &TDim) -> TDim {
    let Ok(known) = value.to_i64() else {
        return value;
    };
    if known >= 0 {
        return match size.to_i64() {
            Ok(size) => known.min(size).to_dim(),
            // A bound beyond any size is the end.
            Err(_) if known > i64::from(i32::MAX) => size.clone(),
            Err(_) => match size.high_inclusive_bound() {
                Some(most) if known >= most => size.clone(),
                _ => value,
            },
        };
    }
    match size.to_i64() {
        Ok(size) => (known + size).max(0).to_dim(),
        Err(_) => (size.clone() + known).reduce(),
    }
}

fn slice(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let axis = call.axis(1, shape.len())?;
    let slots = [call.slot(2)?, call.slot(3)?];
    if slots
        .iter()
        .any(|slot| matches!(slot, FrameSlot::Number(_)))
    {
        ensure!(
            call.int(4)? == 1,
            "slices with a step need bounds that are known before the run"
        );
        return runtime_slice(call, input, axis, slots);
    }
    let size = shape[axis].clone();
    let start = if call.is_none(2)? {
        TDim::Val(0)
    } else {
        call.dim(2)?
    };
    let end = if call.is_none(3)? {
        size.clone()
    } else {
        call.dim(3)?
    };
    let (start, end) = (bound(start, &size), bound(end, &size));
    let step = call.int(4)?;
    ensure!(step > 0, "invalid step {step}: expected a positive integer");
    let end = match (start.to_i64(), end.to_i64()) {
        (Ok(start), Ok(end)) => end.max(start).to_dim(),
        _ => end,
    };
    let mut outlet = call.frame.builder.slice(input.outlet, axis, start, end)?;
    if step > 1 {
        let builder = &mut call.frame.builder;
        let step = isize::try_from(step)?;
        let op = tract_onnx::tract_core::ops::Downsample {
            axis,
            stride: step,
            modulo: 0,
        };
        outlet = builder.wire(op, &[outlet])?;
    }
    set_only_output(call, outlet, input.dtype)
}

/// Lowers a slice of known length whose start is computed at run time.
fn runtime_slice(
    call: &mut OperatorCall<'_, '_>,
    input: Wire,
    axis: usize,
    [start, end]: [FrameSlot; 2],
) -> TractResult<()> {
    let start = match start {
        FrameSlot::Number(start) => start,
        FrameSlot::Int(plus) => {
            let wire = call.frame.builder.scalar(0.0, DType::Int64, 0)?;
            RuntimeNumber { wire, offset: plus }
        }
        _ => bail!("the start of a slice is missing"),
    };
    let length = match end {
        FrameSlot::Number(end) if end.wire == start.wire => (end.offset - &start.offset).reduce(),
        _ => bail!("the length of a slice must be known before the run"),
    };
    slice_at(call, input, axis, &start, &length)
}

fn slice_at(
    call: &mut OperatorCall<'_, '_>,
    input: Wire,
    axis: usize,
    start: &RuntimeNumber,
    length: &TDim,
) -> TractResult<()> {
    let start = call.frame.number_as_tensor(start)?;
    let mut shape = call.shape(input)?;
    shape[axis] = length.clone();
    let length = call.frame.builder.size(length, DType::Int64)?;
    let check = call.indices(true);
    let inputs = [input.outlet, start.outlet, length];
    let wire = call.kernel("SliceAt", input.dtype, &shape, &inputs, move |inputs| {
        let size = inputs[0].shape()[axis];
        let given = inputs[1].cast_to_scalar::<i64>()?;
        let length = usize::try_from(inputs[2].cast_to_scalar::<i64>()?)?;
        // Negative positions count from the end.
        let start = if given < 0 {
            given.saturating_add(i64::try_from(size)?)
        } else {
            given
        };
        let start = usize::try_from(start).ok();
        let end = start.and_then(|start| start.checked_add(length));
        match (start, end.filter(|end| *end <= size)) {
            (Some(start), Some(end)) => inputs[0].slice(axis, start, end),
            _ => check.reject(format!(
                "{length} elements at index {given} of a dimension of {size}; {} to {} are valid",
                -i64::try_from(size)?,
                i64::try_from(size)? - i64::try_from(length)?
            )),
        }
    })?;
    set_only_output(call, wire.outlet, input.dtype)
}

fn narrow(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let axis = call.axis(1, shape.len())?;
    let length = call.dim(3)?;
    if let FrameSlot::Number(start) = call.slot(2)? {
        return slice_at(call, input, axis, &start, &length);
    }
    let start = bound(call.dim(2)?, &shape[axis]);
    let end = (start.clone() + length).reduce();
    let outlet = call.frame.builder.slice(input.outlet, axis, start, end)?;
    set_only_output(call, outlet, input.dtype)
}

fn select(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let axis = call.axis(1, shape.len())?;
    if let FrameSlot::Number(start) = call.slot(2)? {
        slice_at(call, input, axis, &start, &TDim::Val(1))?;
        let out = call.out();
        let part = call.tensor(out)?;
        let outlet = call.wire(AxisOp::Rm(axis), &[part.outlet])?;
        return set_only_output(call, outlet, input.dtype);
    }
    let at = bound(call.dim(2)?, &shape[axis]);
    let end = (at.clone() + 1).reduce();
    let outlet = call.frame.builder.slice(input.outlet, axis, at, end)?;
    let outlet = call.wire(AxisOp::Rm(axis), &[outlet])?;
    set_only_output(call, outlet, input.dtype)
}
