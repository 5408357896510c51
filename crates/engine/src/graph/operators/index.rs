//! Lowers operators that read and write elements by index.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::Gather;
use tract_onnx::tract_core::ops::logic::Iff;

use super::super::builder::Wire;
use super::super::datum_type;
use super::super::frame::FrameSlot;
use super::call::{LoweringTable, OperatorCall};
use super::elements::{
    IndexCheck, broadcast_strides, floats, gather_elements, ints, places, strides,
    tensor_of_floats, tensor_of_ints,
};
use crate::graph::kernel::Kernel;
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::index.Tensor_out"], index),
    (&["aten::index_put.out"], |call| index_put(call, false)),
    (&["aten::index_put_"], |call| index_put(call, true)),
    (&["aten::index_select.out"], index_select),
    (&["aten::gather.out"], gather),
    (&["aten::scatter.src_out"], |call| scatter(call, false)),
    (&["aten::scatter.value_out"], |call| scatter(call, false)),
    (&["aten::scatter_add.out"], |call| scatter(call, true)),
    (&["aten::nonzero.out"], nonzero),
    (&["aten::masked_select.out"], masked_select),
    (&["aten::masked_scatter.out"], masked_scatter),
    (&["aten::repeat_interleave.Tensor_out"], repeat_interleave),
    (&["aten::select_scatter.out"], select_scatter),
    (&["aten::slice_scatter.out"], slice_scatter),
];

/// Index tensors by dimension. A mask counts as one index for each of its dimensions.
struct Indexed {
    axes: Vec<usize>,
    outlets: Vec<OutletId>,
    /// Broadcast shape of all indices.
    shape: Vec<TDim>,
    /// Whether the indexed dimensions are adjacent.
    together: bool,
}

fn indexed(call: &mut OperatorCall<'_, '_>, at: usize) -> TractResult<Indexed> {
    let mut axes = Vec::new();
    let mut outlets = Vec::new();
    let mut axis = 0;
    for wire in call.optional_tensors(at)? {
        let Some(wire) = wire else {
            axis += 1;
            continue;
        };
        if wire.dtype == DType::Bool {
            for outlet in mask_indices(call, wire)? {
                axes.push(axis);
                outlets.push(outlet);
                axis += 1;
            }
            continue;
        }
        axes.push(axis);
        outlets.push(call.frame.builder.cast(wire, DType::Int64)?.outlet);
        axis += 1;
    }
    ensure!(!axes.is_empty(), "no index tensors");
    let shape = call.frame.builder.broadcast_shape(&outlets)?;
    let together = axes.windows(2).all(|pair| pair[1] == pair[0] + 1);
    Ok(Indexed {
        axes,
        outlets,
        shape,
        together,
    })
}

/// Returns the indices of a mask's true elements, for each of its dimensions.
fn mask_indices(call: &mut OperatorCall<'_, '_>, mask: Wire) -> TractResult<Vec<OutletId>> {
    let rank = call.rank(mask)?;
    let count = runtime_size(call);
    let facts = (0..rank).map(|_| i64::fact([count.clone()])).collect();
    let kernel = Kernel::new("MaskPlaces", facts, move |inputs| {
        let shape = inputs[0].shape();
        let own = strides(shape);
        let chosen = ints(&inputs[0])?;
        let found: Vec<usize> = (0..chosen.len()).filter(|at| chosen[*at] != 0).collect();
        let along = (0..rank).map(|axis| {
            let places = found
                .iter()
                .map(|place| i64::try_from(place / own[axis] % shape[axis]));
            Ok(tensor1(&places.collect::<Result<Vec<i64>, _>>()?))
        });
        along.collect()
    });
    let outlets = call.builder().wire_all(kernel.binding(), &[mask.outlet])?;
    Ok(outlets.to_vec())
}

impl Indexed {
    /// Returns the shape of the elements that the indices select from a tensor of this shape.
    fn picked<D: Clone>(&self, shape: &[D], indices: &[D]) -> Vec<D> {
        picked_shape(&self.axes, self.together, shape, indices)
    }
}

fn picked_shape<D: Clone>(axes: &[usize], together: bool, shape: &[D], indices: &[D]) -> Vec<D> {
    let rest = |range: std::ops::Range<usize>| -> Vec<D> {
        range
            .filter(|axis| !axes.contains(axis))
            .map(|axis| shape[axis].clone())
            .collect()
    };
    let first = if together { axes[0] } else { 0 };
    let mut picked = rest(0..first);
    picked.extend(indices.iter().cloned());
    picked.extend(rest(first..shape.len()));
    picked
}

/// Returns the position in the tensor of each indexed element, and the shape of the selection.
fn named(
    shape: &[usize],
    axes: &[usize],
    together: bool,
    indices: &[&Tensor],
    check: &IndexCheck,
) -> TractResult<(Vec<usize>, Vec<usize>)> {
    let shapes: Vec<&[usize]> = indices.iter().map(|index| index.shape()).collect();
    let joint = tract_onnx::tract_core::broadcast::multi_broadcast(&shapes)?.to_vec();
    let own = strides(shape);
    let count: usize = joint.iter().product();
    let mut starts = vec![0; count];
    for (index, &axis) in indices.iter().zip(axes) {
        let values = ints(index)?;
        let from = places(&joint, &broadcast_strides(index.shape(), &joint));
        for (start, from) in starts.iter_mut().zip(from) {
            *start += check.place(values[from], shape[axis])? * own[axis];
        }
    }
    let first = if together { axes[0] } else { 0 };
    let kept = |range: std::ops::Range<usize>| -> Vec<usize> {
        range.filter(|axis| !axes.contains(axis)).collect()
    };
    let spread = |axes: Vec<usize>| {
        let sizes: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
        let steps: Vec<usize> = axes.iter().map(|&axis| own[axis]).collect();
        places(&sizes, &steps)
    };
    let (before, after) = (spread(kept(0..first)), spread(kept(first..shape.len())));
    let mut all = Vec::with_capacity(before.len() * count * after.len());
    for before in &before {
        for start in &starts {
            all.extend(after.iter().map(|after| before + start + after));
        }
    }
    Ok((all, picked_shape(axes, together, shape, &joint)))
}

fn index(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let indexed = indexed(call, 1)?;
    let shape = call.shape(input)?;
    ensure!(
        indexed.axes.iter().all(|axis| *axis < shape.len()),
        "more index tensors than dimensions"
    );
    if let ([axis], [outlet]) = (indexed.axes.as_slice(), indexed.outlets.as_slice()) {
        let outlet = &call.checked_indices(*outlet, &shape[*axis], true)?;
        let outlet = call.wire(Gather::new(*axis), &[input.outlet, *outlet])?;
        return call.set_output(2, Wire { outlet, ..input });
    }
    let to = indexed.picked(&shape, &indexed.shape);
    let inputs: Vec<OutletId> = [input.outlet].into_iter().chain(indexed.outlets).collect();
    let (axes, together) = (indexed.axes, indexed.together);
    let check = call.indices(true);
    let wire = call.kernel("Index", input.dtype, &to, &inputs, move |inputs| {
        let indices: Vec<&Tensor> = inputs[1..].iter().map(|index| &**index).collect();
        let (from, shape) = named(inputs[0].shape(), &axes, together, &indices, &check)?;
        gather_elements(&inputs[0], &shape, &from)
    })?;
    call.set_output(2, wire)
}

fn index_put(call: &mut OperatorCall<'_, '_>, in_place: bool) -> TractResult<()> {
    let input = call.tensor(0)?;
    let indexed = indexed(call, 1)?;
    let shape = call.shape(input)?;
    ensure!(
        indexed.axes.iter().all(|axis| *axis < shape.len()),
        "more index tensors than dimensions"
    );
    let values = call.tensor(2)?;
    let values = call.frame.builder.cast(values, input.dtype)?;
    let add = call.bool(3)?;
    let inputs = [input.outlet, values.outlet]
        .into_iter()
        .chain(indexed.outlets);
    let inputs: Vec<OutletId> = inputs.collect();
    let (axes, together) = (indexed.axes, indexed.together);
    let check = call.indices(true);
    let wire = call.kernel("IndexPut", input.dtype, &shape, &inputs, move |inputs| {
        let indices: Vec<&Tensor> = inputs[2..].iter().map(|index| &**index).collect();
        let (to, picked) = named(inputs[0].shape(), &axes, together, &indices, &check)?;
        let from = places(&picked, &broadcast_strides(inputs[1].shape(), &picked));
        put_elements(&inputs[0], &inputs[1], to.into_iter().zip(from), add)
    })?;
    if in_place {
        call.set_output(0, wire)?;
    }
    call.set_result(wire)
}

/// Copies or adds elements of another tensor to a tensor, by pairs of target and source positions.
fn put_elements(
    into: &Tensor,
    from: &Tensor,
    places: impl Iterator<Item = (usize, usize)>,
    add: bool,
) -> TractResult<Tensor> {
    let dtype = into.datum_type();
    if add {
        let shape = into.shape();
        if dtype.is_float() {
            let (mut sums, values) = (floats(into)?, floats(from)?);
            for (to, from) in places {
                sums[to] += values[from];
            }
            return tensor_of_floats(shape, &sums, dtype);
        }
        let (mut sums, values) = (ints(into)?, ints(from)?);
        for (to, from) in places {
            sums[to] = sums[to].wrapping_add(values[from]);
        }
        return tensor_of_ints(shape, &sums, dtype);
    }
    let size = dtype.size_of();
    let mut output = into.deep_clone();
    let bytes = output.as_bytes_mut();
    let source = from.as_bytes();
    for (to, from) in places {
        let (Some(to), Some(from)) = (
            bytes.get_mut(to * size..(to + 1) * size),
            source.get(from * size..(from + 1) * size),
        ) else {
            bail!("index out of range");
        };
        to.copy_from_slice(from);
    }
    Ok(output)
}

/// Returns the first three arguments: a tensor, one of its dimensions, and indices.
fn along_axis(call: &mut OperatorCall<'_, '_>) -> TractResult<(Wire, usize, OutletId)> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    let axis = call.axis(1, rank)?;
    Ok((input, axis, call.tensor_as(2, DType::Int64)?))
}

fn index_select(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let (input, axis, indices) = along_axis(call)?;
    let size = call.shape(input)?.get(axis).cloned();
    let indices = call.checked_indices(indices, &size.unwrap_or(TDim::Val(1)), false)?;
    let outlet = call.wire(Gather::new(axis), &[input.outlet, indices])?;
    call.set_output(3, Wire { outlet, ..input })
}

/// Returns the position in the tensor of each element of an index.
fn axis_positions(
    shape: &[usize],
    index: &Tensor,
    axis: usize,
    check: &IndexCheck,
) -> TractResult<Vec<usize>> {
    if shape.is_empty() {
        let places = ints(index)?.into_iter().map(|value| check.place(value, 1));
        return places.collect();
    }
    let own = strides(shape);
    let of_index = strides(index.shape());
    let values = ints(index)?;
    let mut all = Vec::with_capacity(values.len());
    for (place, value) in values.into_iter().enumerate() {
        let mut at = check.place(value, shape[axis])? * own[axis];
        for (dim, step) in of_index.iter().enumerate() {
            if dim != axis {
                at += place / step % index.shape()[dim] * own[dim];
            }
        }
        all.push(at);
    }
    Ok(all)
}

fn gather(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let (input, axis, index) = along_axis(call)?;
    let shape = call.frame.builder.shape(index)?;
    let inputs = [input.outlet, index];
    let check = call.indices(false);
    let wire = call.kernel("Gather", input.dtype, &shape, &inputs, move |inputs| {
        let from = axis_positions(inputs[0].shape(), &inputs[1], axis, &check)?;
        gather_elements(&inputs[0], inputs[1].shape(), &from)
    })?;
    call.set_output(4, wire)
}

fn scatter(call: &mut OperatorCall<'_, '_>, add: bool) -> TractResult<()> {
    let (input, axis, index) = along_axis(call)?;
    let shape = call.shape(input)?;
    let source = if call.body(3)?.tensor().is_some() {
        call.tensor_as(3, input.dtype)?
    } else {
        call.scalar(3, input.dtype, 0)?
    };
    let inputs = [input.outlet, index, source];
    let check = call.indices(false);
    let wire = call.kernel("Scatter", input.dtype, &shape, &inputs, move |inputs| {
        let to = axis_positions(inputs[0].shape(), &inputs[1], axis, &check)?;
        let source = &inputs[2];
        let from = if source.rank() == 0 {
            vec![0; to.len()]
        } else {
            places(inputs[1].shape(), &strides(source.shape()))
        };
        put_elements(&inputs[0], source, to.into_iter().zip(from), add)
    })?;
    call.set_result(wire)
}

/// Returns a new symbol for a size known only at run time.
fn runtime_size(call: &mut OperatorCall<'_, '_>) -> TDim {
    call.builder().model.symbols.new_with_prefix("count").into()
}

fn nonzero(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    let count = runtime_size(call);
    let fact = i64::fact([count, rank.to_dim()]);
    let kernel = Kernel::new("NonZero", tvec!(fact), move |inputs| {
        let shape = inputs[0].shape();
        let own = strides(shape);
        let mut found = Vec::new();
        for (place, value) in floats(&inputs[0])?.into_iter().enumerate() {
            if value != 0.0 {
                for (size, step) in shape.iter().zip(&own) {
                    found.push(i64::try_from(place / step % size)?);
                }
            }
        }
        let count = if shape.is_empty() {
            0
        } else {
            found.len() / shape.len()
        };
        Ok(tvec!(Tensor::from_shape(&[count, shape.len()], &found)?))
    });
    let outlet = call.wire(kernel.binding(), &[input.outlet])?;
    call.set_result(Wire::new(outlet, DType::Int64))
}

fn masked_select(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let mask = call.tensor_as(1, DType::Bool)?;
    let count = runtime_size(call);
    let fact = datum_type(input.dtype).fact([count]);
    let kernel = Kernel::new("MaskedSelect", tvec!(fact), move |inputs| {
        let (input, mask) = (&inputs[0], &inputs[1]);
        let shape =
            tract_onnx::tract_core::broadcast::multi_broadcast(&[input.shape(), mask.shape()])?;
        let chosen = ints(mask)?;
        let of_mask = places(&shape, &broadcast_strides(mask.shape(), &shape));
        let from = places(&shape, &broadcast_strides(input.shape(), &shape));
        let from: Vec<usize> = from
            .into_iter()
            .zip(of_mask)
            .filter(|(_, at)| chosen[*at] != 0)
            .map(|(from, _)| from)
            .collect();
        Ok(tvec!(gather_elements(input, &[from.len()], &from)?))
    });
    let outlet = call.wire(kernel.binding(), &[input.outlet, mask])?;
    call.set_result(Wire::new(outlet, input.dtype))
}

fn masked_scatter(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let mask = call.tensor_as(1, DType::Bool)?;
    let source = call.tensor_as(2, input.dtype)?;
    let shape = call.frame.builder.broadcast_shape(&[input.outlet, mask])?;
    let expanded = call.frame.builder.expand(input.outlet, &shape)?;
    let inputs = [expanded, mask, source];
    let wire = call.kernel(
        "MaskedScatter",
        input.dtype,
        &shape,
        &inputs,
        move |inputs| {
            let shape = inputs[0].shape();
            let chosen = ints(&inputs[1])?;
            let of_mask = places(shape, &broadcast_strides(inputs[1].shape(), shape));
            let to = of_mask
                .into_iter()
                .enumerate()
                .filter(|(_, at)| chosen[*at] != 0);
            put_elements(&inputs[0], &inputs[2], to.map(|(to, _)| to).zip(0..), false)
        },
    )?;
    call.set_output(3, wire)
}

fn repeat_interleave(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let repeats = call.tensor_as(0, DType::Int64)?;
    let count = match call.optional_int(1)? {
        Some(count) => count.to_dim(),
        None => runtime_size(call),
    };
    let check = call.indices(false);
    let kernel = Kernel::new(
        "RepeatInterleave",
        tvec!(i64::fact([count])),
        move |inputs| {
            let mut all = Vec::new();
            for (place, count) in ints(&inputs[0])?.into_iter().enumerate() {
                let Ok(count) = usize::try_from(count) else {
                    return check.reject(format!("{count} repetitions; 0 and more are valid"));
                };
                ensure!(
                    all.len().saturating_add(count) < 1 << 30,
                    "too many repetitions: the total must be below 2^30"
                );
                all.resize(all.len() + count, i64::try_from(place)?);
            }
            Ok(tvec!(tensor1(&all)))
        },
    );
    let outlet = call.wire(kernel.binding(), &[repeats])?;
    call.set_result(Wire::new(outlet, DType::Int64))
}

/// Replaces the part `start..end` of a tensor along an axis by another tensor.
fn replace_part(
    call: &mut OperatorCall<'_, '_>,
    input: Wire,
    axis: usize,
    [start, end]: [TDim; 2],
    part: OutletId,
) -> TractResult<()> {
    let size = call.shape(input)?[axis].clone();
    let builder = &mut call.frame.builder;
    let mut parts = Vec::new();
    if start != TDim::Val(0) {
        parts.push(builder.slice(input.outlet, axis, 0, start)?);
    }
    parts.push(part);
    if end != size {
        parts.push(builder.slice(input.outlet, axis, end, size)?);
    }
    let outlet = builder.concat(&parts, axis)?;
    call.set_result(Wire { outlet, ..input })
}

fn select_scatter(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let part = call.tensor_as(1, input.dtype)?;
    let axis = call.axis(2, shape.len())?;
    let index = call.int(3)?;
    let part = call.wire(AxisOp::Add(axis), &[part])?;
    let at = if index < 0 {
        (shape[axis].clone() + index).reduce()
    } else {
        index.to_dim()
    };
    let end = (at.clone() + 1).reduce();
    replace_part(call, input, axis, [at, end], part)
}

fn slice_scatter(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let part = call.tensor_as(1, input.dtype)?;
    let axis = call.axis(2, shape.len())?;
    let size = shape[axis].to_i64()?;
    let held = |value: i64| {
        if value < 0 {
            (value + size).max(0)
        } else {
            value.min(size)
        }
    };
    for at in [3, 4] {
        ensure!(
            !matches!(call.slot(at)?, FrameSlot::Number(_)),
            "slice bounds must be known before the run"
        );
    }
    let start = held(call.optional_int(3)?.unwrap_or(0));
    let end = held(call.optional_int(4)?.unwrap_or(size)).max(start);
    let step = call.int(5)?;
    ensure!(step > 0, "invalid step {step}: expected a positive integer");
    if step == 1 {
        return replace_part(call, input, axis, [start.to_dim(), end.to_dim()], part);
    }
    // Larger steps: a mask selects the elements of the part, spread out along the axis.
    let places: Vec<i64> = (0..size)
        .map(|at| {
            if at >= start && at < end && (at - start) % step == 0 {
                (at - start) / step
            } else {
                -1
            }
        })
        .collect();
    let mask: Vec<bool> = places.iter().map(|place| *place >= 0).collect();
    let from: Vec<i64> = places.iter().map(|place| (*place).max(0)).collect();
    let rank = shape.len();
    let builder = &mut call.frame.builder;
    let from = builder.constant(Arc::new(tensor1(&from)), DType::Int64)?;
    let spread = builder.wire(Gather::new(axis), &[part, from.outlet])?;
    let mask = builder.constant(Arc::new(tensor1(&mask)), DType::Bool)?;
    let mut lined = mask.outlet;
    for at in axis + 1..rank {
        lined = builder.wire(AxisOp::Add(at - axis), &[lined])?;
    }
    let lined = builder.with_rank(lined, rank)?;
    let outlet = builder.wire(Iff, &[lined, spread, input.outlet])?;
    call.set_result(Wire { outlet, ..input })
}
