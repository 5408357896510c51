//! MLX instructions on parts of dimensions: slices, slice updates, splits and ranges.
//!
//! The bounds of a part may be integers computed at run time.

use tract_onnx::tract_core::internal::*;

use super::integer::{argument, distance};
use super::{InstructionField, InstructionTable, MlxInstruction, MlxLowering};
use crate::graph::builder::{Wire, axis_of};
use crate::graph::calling::{CallArg, CallResult};
use crate::graph::datum_type;
use crate::graph::frame::FrameSlot;
use crate::graph::guard::InvalidInput;
use crate::graph::kernel::Kernel;
use crate::tensor::DType;

/// Maximum number of elements of a range.
const MAX_RANGE_ELEMENTS: usize = 1 << 28;

/// The instructions of this file.
pub(super) const TABLE: InstructionTable = &[
    (&["Split"], split),
    (&["Slice"], slice),
    (&["SliceUpdate"], update),
    (&["ARange"], range),
];

fn split(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let mut sizes = lowering.dims(node, "sizes")?;
    let Some(InstructionField::Tensors(slots)) = node.fields.get("outs") else {
        bail!("missing field `outs`");
    };
    // A single size applies to all parts except possibly the last one.
    if let ([size], true) = (sizes.as_slice(), slots.len() > 1) {
        let rank = lowering.shape(x)?;
        let axis = axis_of(lowering.int(node, "axis")?, rank.len())?;
        let mut parts = vec![size.clone(); slots.len() - 1];
        let before: TDim = parts.iter().cloned().sum();
        parts.push((rank[axis].clone() - before).reduce());
        sizes = parts;
    }
    ensure!(
        slots.len() == sizes.len(),
        "wrong number of parts: got {}, expected {}",
        sizes.len(),
        slots.len()
    );
    let outs = [CallResult::Tensors(vec![x.dtype; sizes.len()])];
    let args = vec![
        x.into(),
        CallArg::Ints(sizes),
        lowering.int(node, "axis")?.into(),
    ];
    let given = lowering
        .caller()
        .call("aten::split_with_sizes_copy.out", args, &outs)?;
    for (slot, given) in slots.iter().zip(given) {
        if let FrameSlot::Tensor(wire) = given {
            lowering.tensors.insert(*slot, wire);
        }
    }
    Ok(())
}

/// Resolves a position in a dimension: negative values count from the end, the result is clamped to
/// the dimension.
fn resolve_position(place: i64, size: usize) -> TractResult<usize> {
    let count = i64::try_from(size)?;
    let place = if place < 0 {
        place.saturating_add(count)
    } else {
        place
    };
    Ok(usize::try_from(place.clamp(0, count))?)
}

/// Lowers a slice of a dimension, possibly backwards.
fn slice(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let shape = lowering.shape(x)?;
    let axis = axis_of(lowering.int(node, "axis")?, shape.len())?;
    let slots = [
        lowering.given(node, "start")?,
        lowering.given(node, "stop")?,
    ];
    let step = lowering.int(node, "step")?;
    if let [FrameSlot::Int(start), FrameSlot::Int(stop)] = slots {
        let wire = constant_slice(lowering, x, axis, [start, stop], step)?;
        return lowering.write_output(node, wire);
    }
    ensure!(
        step == 1,
        "unsupported step {step} from a start computed at run time: expected 1"
    );
    let [start, stop] = slots;
    if distance(&start, &stop).is_some() {
        let at = i64::try_from(axis)?;
        let (start, stop) = (argument(start)?, argument(stop)?);
        let args = vec![x.into(), at.into(), start, stop, 1.into()];
        let wire = lowering.aten("aten::slice_copy.Tensor_out", args, x.dtype)?;
        return lowering.write_output(node, wire);
    }
    let mut to = shape;
    to[axis] = lowering.runtime_size();
    let inputs = [
        x.outlet,
        lowering.as_tensor(&start)?,
        lowering.as_tensor(&stop)?,
    ];
    let kernel = Kernel::new(
        "Part",
        tvec!(datum_type(x.dtype).fact(&to)),
        move |inputs| {
            let size = inputs[0].shape()[axis];
            let start = resolve_position(inputs[1].cast_to_scalar::<i64>()?, size)?;
            let stop = resolve_position(inputs[2].cast_to_scalar::<i64>()?, size)?;
            Ok(tvec!(inputs[0].slice(axis, start, stop.max(start))?))
        },
    );
    let outlet = lowering.frame.builder.wire(kernel.binding(), &inputs)?;
    lowering.write_output(node, Wire { outlet, ..x })
}

fn constant_slice(
    lowering: &mut MlxLowering<'_, '_>,
    x: Wire,
    axis: usize,
    [mut start, mut stop]: [TDim; 2],
    step: i64,
) -> TractResult<Wire> {
    let size = lowering.shape(x)?[axis].clone();
    let at = i64::try_from(axis)?;
    if step == -1 {
        // From position `start` down to the one right after `stop`.
        let size = size.to_i64()?;
        let [first, last] = [start.to_i64()?, stop.to_i64()?]
            .map(|place| if place < 0 { place + size } else { place });
        start = (last.max(-1) + 1).to_dim();
        stop = (first.min(size - 1) + 1).to_dim();
    }
    ensure!(step >= -1, "unsupported step {step}: expected -1 or more");
    let args = vec![
        x.into(),
        at.into(),
        CallArg::Int(start),
        CallArg::Int(stop),
        step.abs().into(),
    ];
    let wire = lowering.aten("aten::slice_copy.Tensor_out", args, x.dtype)?;
    if step == -1 {
        let args = vec![wire.into(), CallArg::from([at].as_slice())];
        return lowering.aten("aten::flip.out", args, x.dtype);
    }
    Ok(wire)
}

/// Replaces a part of one dimension of a tensor by another tensor.
fn update(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let into = lowering.tensor(node, "dst")?;
    let part = lowering.tensor(node, "update")?;
    let shape = lowering.shape(into)?;
    let axis = axis_of(lowering.int(node, "axis")?, shape.len())?;
    let step = usize::try_from(lowering.int(node, "step")?)?;
    ensure!(step > 0, "the step is 0");
    let (start, stop) = (
        lowering.given(node, "start")?,
        lowering.given(node, "stop")?,
    );
    let builder = &mut lowering.frame.builder;
    let part = builder.cast(part, into.dtype)?.outlet;
    let part = builder.with_rank(part, shape.len())?;
    let mut wide = shape.clone();
    wide[axis] = builder.shape(part)?[axis].clone();
    let part = builder.expand(part, &wide)?;
    let inputs = [
        into.outlet,
        part,
        lowering.as_tensor(&start)?,
        lowering.as_tensor(&stop)?,
    ];
    let builder = &mut lowering.frame.builder;
    let wire = builder.kernel("SliceUpdate", into.dtype, &shape, &inputs, move |inputs| {
        let size = inputs[0].shape()[axis];
        let given = [&inputs[2], &inputs[3]].map(|input| input.cast_to_scalar::<i64>());
        let [start, stop] = given;
        let (start, stop) = (start?, stop?);
        let (from, to) = (
            resolve_position(start, size)?,
            resolve_position(stop, size)?,
        );
        let places: Vec<usize> = (from..to.max(from)).step_by(step).collect();
        let count = inputs[1].shape()[axis];
        let fits = places.is_empty() || count == 1 || count == places.len();
        if !fits {
            let reason = format!("{start}..{stop} of a dimension of {size} for {count} elements");
            let operator = "SliceUpdate".to_owned();
            return Err(InvalidInput { operator, reason }.into());
        }
        Ok(copy_rows(&inputs[0], &inputs[1], &places, axis))
    })?;
    lowering.write_output(node, wire)
}

/// Copies rows of another tensor to these positions of a dimension: one for each, or one for all.
fn copy_rows(into: &Tensor, part: &Tensor, places: &[usize], axis: usize) -> Tensor {
    let shape = into.shape();
    let inner: usize = shape[axis + 1..].iter().product::<usize>() * into.datum_type().size_of();
    let outer: usize = shape[..axis].iter().product();
    let (size, count) = (shape[axis], part.shape()[axis]);
    let mut updated = Tensor::clone(into);
    let (to, from) = (updated.as_bytes_mut(), part.as_bytes());
    for block in 0..outer {
        for (at, place) in places.iter().enumerate() {
            let at = if count == 1 { 0 } else { at };
            let to = &mut to[(block * size + place) * inner..][..inner];
            to.copy_from_slice(&from[(block * count + at) * inner..][..inner]);
        }
    }
    updated
}

/// Lowers a range of integers.
fn range(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let [start, stop, step] = ["start", "stop", "step"].map(|name| lowering.given(node, name));
    let (start, stop, step) = (start?, stop?, step?);
    let dtype = lowering.dtype_field(node, "scalar_type")?;
    let dtype = dtype.unwrap_or(DType::Int32);
    let known = |slot: &FrameSlot| matches!(slot, FrameSlot::Int(dim) if dim.to_i64().is_ok());
    if [&start, &stop, &step].into_iter().all(known) {
        let args = [start, stop, step].map(argument);
        let args = args.into_iter().collect::<TractResult<_>>()?;
        let wire = lowering.aten("aten::arange.start_out", args, dtype)?;
        return lowering.write_output(node, wire);
    }
    let by_one = matches!(&step, FrameSlot::Int(step) if step.is_one());
    let length = match distance(&start, &stop) {
        Some(length) if by_one => length,
        _ => lowering.runtime_size(),
    };
    let inputs = [
        lowering.as_tensor(&start)?,
        lowering.as_tensor(&stop)?,
        lowering.as_tensor(&step)?,
    ];
    let fact = i64::fact([length]);
    let kernel = Kernel::new("IntegersFrom", tvec!(fact), |inputs| {
        let each = |at: usize| inputs[at].cast_to_scalar::<i64>();
        let (start, stop, step) = (each(0)?, each(1)?, each(2)?);
        let span = stop.saturating_sub(start);
        ensure!(step != 0, "the step of a range is 0");
        let backwards = (span < 0) != (step < 0);
        let count = if backwards {
            0
        } else {
            span.unsigned_abs().div_ceil(step.unsigned_abs())
        };
        let count = usize::try_from(count)?;
        ensure!(
            count <= MAX_RANGE_ELEMENTS,
            "range too long: {count} elements"
        );
        let numbers = std::iter::successors(Some(start), |last| last.checked_add(step));
        let numbers: Vec<i64> = numbers.take(count).collect();
        Ok(tvec!(tensor1(&numbers)))
    });
    let outlet = lowering.frame.builder.wire(kernel.binding(), &inputs)?;
    let whole = DType::Int64;
    let wire = Wire::new(outlet, whole);
    let wire = lowering.frame.builder.cast(wire, dtype)?;
    lowering.write_output(node, wire)
}
