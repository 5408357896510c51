//! Core ML slices, slice updates, gathering and states.

use tract_onnx::tract_core::internal::*;

use super::cut::{SliceEnd, runtime_slice};
use super::held::CoremlOperand;
use super::scatter::gather_in_batches;
use super::shape::INDEX;
use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::builder::{Wire, axis_of};
use crate::graph::calling::CallArg;
use pkgtool_model::executorch::coreml::Argument;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (&["slice_by_index"], slice),
    (&["slice_by_size"], by_size),
    (&["slice_update"], update),
    (&["gather"], gather),
    (&["gather_along_axis"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let indices = lowering.tensor(operation, "indices")?;
        let axis = lowering.int(operation, "axis", 0)?;
        let args = vec![x.into(), axis.into(), indices.into(), false.into()];
        lowering.aten_result("aten::gather.out", args, x.dtype)
    }),
    (&["read_state"], |lowering, operation| {
        let (_, wire) = *state(lowering, operation)?;
        Ok(one(wire))
    }),
    (&["write_state"], |lowering, operation| {
        let data = lowering.tensor(operation, "data")?;
        let dtype = state(lowering, operation)?.1.dtype;
        let wire = lowering.frame.builder.cast(data, dtype)?;
        state(lowering, operation)?.1 = wire;
        Ok(Vec::new())
    }),
];

/// Returns the state that an operation reads or writes.
fn state<'l>(
    lowering: &'l mut CoremlLowering<'_, '_>,
    operation: &Operation,
) -> TractResult<&'l mut (usize, Wire)> {
    let Some([Argument::Name(name)]) = operation.inputs.get("input").map(Vec::as_slice) else {
        bail!("the operation does not name a state");
    };
    let state = lowering.states.get_mut(name);
    state.with_context(|| format!("unknown state `{name}`"))
}

/// Start and end of a slice along each dimension, with the masks applied.
struct SliceBounds {
    begin: Vec<TDim>,
    end: Vec<TDim>,
    stride: Vec<i64>,
}

impl SliceBounds {
    fn read(
        lowering: &CoremlLowering<'_, '_>,
        operation: &Operation,
        shape: &[TDim],
    ) -> TractResult<Option<Self>> {
        let [begin, end] = ["begin", "end"].map(|name| -> TractResult<_> {
            let held = lowering.held_arg(operation, name)?;
            lowering.sizes_of(&held)
        });
        let (Some(mut begin), Some(mut end)) = (begin?, end?) else {
            return Ok(None);
        };
        let rank = shape.len();
        ensure!(
            begin.len() == rank && end.len() == rank,
            "invalid slice of {rank} dimensions: {} start and {} end positions",
            begin.len(),
            end.len()
        );
        let stride = lowering.ints(operation, "stride")?;
        let stride = stride.unwrap_or_else(|| vec![1; rank]);
        ensure!(stride.len() == rank, "invalid strides {stride:?}");
        // Slices with such strides are computed at run time.
        if stride.iter().any(|stride| *stride < 1) {
            return Ok(None);
        }
        let [from_start, to_end, single] =
            ["begin_mask", "end_mask", "squeeze_mask"].map(|name| lowering.bools(operation, name));
        let (from_start, to_end, single) = (from_start?, to_end?, single?);
        let is = |mask: &[bool], at: usize| mask.get(at).copied().unwrap_or(false);
        for (at, size) in shape.iter().enumerate() {
            // Positions before the first one are clamped to it.
            let positive = |place: &TDim| match (place.to_i64(), size.to_i64()) {
                (Ok(place), Ok(size)) if place < 0 => (size + place).max(0).to_dim(),
                (Ok(place), Err(_)) if place < 0 => size.clone() + place,
                _ => place.clone(),
            };
            begin[at] = if is(&from_start, at) {
                0.to_dim()
            } else {
                positive(&begin[at])
            };
            end[at] = match end[at].to_i64() {
                _ if is(&single, at) => begin[at].clone() + 1,
                _ if is(&to_end, at) => size.clone(),
                // Ends beyond the dimension are clamped to its size.
                Ok(place) if size.to_i64().is_ok_and(|size| place > size) => size.clone(),
                _ => positive(&end[at]),
            };
        }
        Ok(Some(Self { begin, end, stride }))
    }
}

fn slice(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    if let CoremlOperand::Sizes { sizes, .. } = lowering.held_arg(operation, "x")?
        && let Some(part) = SliceBounds::read(lowering, operation, &[sizes.len().to_dim()])?
    {
        let (begin, end) = (part.begin[0].to_usize()?, part.end[0].to_usize()?);
        let sizes = sizes
            .get(begin..end.max(begin))
            .context("slice is out of range")?;
        let step = usize::try_from(part.stride[0])?;
        let sizes = sizes.iter().step_by(step).cloned().collect();
        let is_number = lowering.bools(operation, "squeeze_mask")?.first() == Some(&true);
        return Ok(vec![CoremlOperand::Sizes { sizes, is_number }]);
    }
    let x = lowering.tensor(operation, "x")?;
    let shape = lowering.shape(x)?;
    let Some(part) = SliceBounds::read(lowering, operation, &shape)? else {
        return runtime_slice(lowering, operation, x, SliceEnd::Places);
    };
    let mut wire = x;
    for (at, ((begin, end), stride)) in part
        .begin
        .iter()
        .zip(&part.end)
        .zip(&part.stride)
        .enumerate()
    {
        let args = vec![
            wire.into(),
            i64::try_from(at)?.into(),
            CallArg::Int(begin.clone()),
            CallArg::Int(end.clone()),
            (*stride).into(),
        ];
        if *begin != TDim::Val(0) || *end != shape[at] || *stride != 1 {
            wire = lowering.aten("aten::slice_copy.Tensor_out", args, x.dtype)?;
        }
    }
    let single = lowering.bools(operation, "squeeze_mask")?;
    let single: Vec<usize> = (0..single.len()).filter(|&at| single[at]).collect();
    wire.outlet = lowering.frame.builder.remove(wire.outlet, &single)?;
    Ok(one(wire))
}

/// Lowers a slice of the given sizes from a start position; a size of -1 takes the remaining
/// elements.
fn by_size(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let shape = lowering.shape(x)?;
    let [begin, size] = ["begin", "size"].map(|name| -> TractResult<_> {
        let held = lowering.held_arg(operation, name)?;
        lowering.sizes_of(&held)
    });
    let (Some(begin), Some(size)) = (begin?, size?) else {
        return runtime_slice(lowering, operation, x, SliceEnd::Sizes);
    };
    ensure!(
        begin.len() == shape.len() && size.len() == shape.len(),
        "invalid slice: {} start positions and {} sizes for {} dimensions",
        begin.len(),
        size.len(),
        shape.len()
    );
    let mut wire = x;
    for (at, (begin, size)) in begin.into_iter().zip(size).enumerate() {
        let begin = match begin.to_i64() {
            Ok(place) if place < 0 => shape[at].clone() + place,
            _ => begin,
        };
        let end = match size.to_i64() {
            Ok(size) if size < 1 => shape[at].clone(),
            _ => (begin.clone() + size).reduce(),
        };
        let builder = &mut lowering.frame.builder;
        wire.outlet = builder.slice(wire.outlet, at, begin, end)?;
    }
    Ok(one(wire))
}

/// Converts negative indices, which count from the end, to non-negative ones.
fn non_negative_indices(
    lowering: &mut CoremlLowering<'_, '_>,
    indices: Wire,
    size: &TDim,
) -> TractResult<Wire> {
    let builder = &mut lowering.frame.builder;
    let shape = builder.shape(indices.outlet)?;
    let size = builder.size(size, INDEX)?;
    let inputs = [indices.outlet, size];
    builder.kernel("FromStart", INDEX, &shape, &inputs, |inputs| {
        let size = inputs[1].cast_to_scalar::<i64>()?;
        let mut indices = inputs[0].clone().into_tensor();
        let mut view = indices.try_as_plain_ram_mut()?;
        for index in view
            .as_slice_mut::<i64>()?
            .iter_mut()
            .filter(|index| **index < 0)
        {
            *index = index.saturating_add(size);
        }
        Ok(indices)
    })
}

/// Lowers a slice update: replaces a part of a tensor. The start may be known only at run time, and
/// the size is that of the update.
fn update(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let shape = lowering.shape(x)?;
    let part = lowering.tensor(operation, "update")?;
    let part = lowering.frame.builder.cast(part, x.dtype)?;
    let stride = lowering.ints(operation, "stride")?.unwrap_or_default();
    ensure!(
        stride.iter().all(|stride| *stride == 1),
        "unsupported strides {stride:?}"
    );
    let single = lowering.bools(operation, "squeeze_mask")?;
    ensure!(
        single.iter().all(|single| !single),
        "unsupported squeeze mask"
    );
    let whole = lowering.bools(operation, "begin_mask")?;
    let begin = lowering.tensor(operation, "begin")?;
    let begin = lowering.frame.builder.cast(begin, INDEX)?;
    let inputs = [x.outlet, part.outlet, begin.outlet];
    let builder = &mut lowering.frame.builder;
    let wire = builder.kernel("SliceUpdate", x.dtype, &shape, &inputs, move |inputs| {
        let begin = inputs[2].try_as_plain_ram()?;
        let begin = begin.as_slice::<i64>()?;
        let (shape, part) = (inputs[0].shape(), inputs[1].shape());
        ensure!(
            begin.len() == shape.len() && part.len() == shape.len(),
            "invalid slice update: {} start positions for {} dimensions",
            begin.len(),
            shape.len()
        );
        let mut starts = Vec::new();
        for (at, ((begin, size), part)) in begin.iter().zip(shape).zip(part).enumerate() {
            let begin = if whole.get(at) == Some(&true) {
                0
            } else {
                *begin
            };
            let count = i64::try_from(*size)?;
            let begin = if begin < 0 { begin + count } else { begin };
            let start = usize::try_from(begin)?;
            ensure!(
                start + part <= *size,
                "slice update out of range: {part} positions from {start} in a dimension of size {size}"
            );
            starts.push(start);
        }
        let mut updated = Tensor::clone(&inputs[0]);
        write(&mut updated, &inputs[1], &starts);
        Ok(updated)
    })?;
    Ok(one(wire))
}

/// Copies an update to its start position, row by row.
fn write(into: &mut Tensor, part: &Tensor, starts: &[usize]) {
    let width = into.datum_type().size_of();
    let (shape, sizes) = (into.shape().to_vec(), part.shape().to_vec());
    let row = sizes.last().copied().unwrap_or(1);
    let rows = part.len().checked_div(row).unwrap_or(0);
    let from = part.as_bytes();
    let to = into.as_bytes_mut();
    for at in 0..rows {
        let (mut rest, mut place, mut step) = (at, 0, 1);
        for axis in (0..shape.len()).rev() {
            let own = if axis + 1 == shape.len() {
                0
            } else {
                let own = rest % sizes[axis];
                rest /= sizes[axis];
                own
            };
            place += (starts[axis] + own) * step;
            step *= shape[axis];
        }
        let bytes = row * width;
        to[place * width..place * width + bytes].copy_from_slice(&from[at * bytes..][..bytes]);
    }
}

/// Gathers rows of a tensor along a dimension; the dimensions of the indices replace it.
fn gather(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    if let CoremlOperand::Sizes { sizes, .. } = lowering.held_arg(operation, "x")?
        && let indices = lowering.held_arg(operation, "indices")?
        && let rank = lowering.rank_of(&indices)?
        && rank <= 1
    {
        let places = lowering.required_ints(operation, "indices")?;
        let chosen = places.iter().map(|&place| {
            let place = axis_of(place, sizes.len())?;
            Ok(sizes[place].clone())
        });
        let sizes = chosen.collect::<TractResult<_>>()?;
        let is_number = rank == 0;
        return Ok(vec![CoremlOperand::Sizes { sizes, is_number }]);
    }
    let x = lowering.tensor(operation, "x")?;
    let indices = lowering.tensor(operation, "indices")?;
    let indices = lowering.frame.builder.cast(indices, INDEX)?;
    let rank = lowering.shape(x)?.len();
    let axis = lowering.axis(operation, "axis", rank)?;
    let batch = usize::try_from(lowering.int(operation, "batch_dims", 0)?)?;
    if batch > 0 {
        return gather_in_batches(lowering, (x, indices), axis, batch);
    }
    let indices = non_negative_indices(lowering, indices, &lowering.shape(x)?[axis])?;
    lowering.caller().rows(x, indices, axis).map(one)
}
