//! Core ML operations that change shapes, join tensors, and pad.

use tract_onnx::tract_core::internal::*;

use super::held::CoremlOperand;
use super::real::check_size;
use super::{CoremlLowering, FrameSlot, Operation, OperationTable, Results, one};
use crate::graph::builder::{Wire, axes_of};
use crate::graph::calling::{CallArg, CallResult};
use crate::tensor::DType;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (&["reshape"], reshape),
    (&["expand_dims"], expand),
    (&["squeeze"], squeeze),
    (&["transpose"], transpose),
    (&["tile"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let reps = lowering
            .sizes(operation, "reps")?
            .context("missing argument `reps`")?;
        let shape = lowering.shape(x)?;
        ensure!(
            shape.len() == reps.len(),
            "wrong number of repetitions: got {} for {} dimensions",
            reps.len(),
            shape.len()
        );
        let sizes = shape
            .into_iter()
            .zip(&reps)
            .map(|(size, count)| size * count);
        check_size(&sizes.collect::<Vec<_>>())?;
        let args = vec![x.into(), CallArg::Ints(reps)];
        lowering.aten_result("aten::repeat.out", args, x.dtype)
    }),
    (&["concat"], concat),
    (&["stack"], |lowering, operation| {
        if let Some(list) = stacked_sizes(lowering, operation)? {
            return Ok(vec![list]);
        }
        let wires = wires(lowering, operation)?;
        let axis = lowering.int(operation, "axis", 0)?;
        let args = vec![CallArg::Tensors(wires), axis.into()];
        lowering.result(operation, "aten::stack.out", args)
    }),
    (&["split"], split),
    (&["reverse"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let rank = lowering.shape(x)?.len();
        let axes = lowering.axes(operation, rank)?;
        let axes = axes.unwrap_or_else(|| (0..rank).collect());
        let axes: Vec<TDim> = axes.into_iter().map(|axis| axis.to_dim()).collect();
        let args = vec![x.into(), CallArg::Ints(axes)];
        lowering.aten_result("aten::flip.out", args, x.dtype)
    }),
    (&["pad"], pad),
    (&["crop"], crop),
    (&["identity"], |lowering, operation| {
        Ok(vec![lowering.held_arg(operation, "x")?])
    }),
];

/// Returns the tensors of `values`.
fn wires(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> TractResult<Vec<Wire>> {
    let held = lowering.all(operation, "values")?;
    held.iter().map(|held| lowering.wire(held)).collect()
}

/// Reshapes a tensor. A size of 0 keeps the same dimension, counted from the end; -1 takes the
/// remaining elements.
///
/// Before iOS17, shapes with a 0 keep the number of dimensions.
fn reshape(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let from = lowering.shape(x)?;
    let mut wanted = lowering.sizes(operation, "shape")?.unwrap_or_default();
    for (at, size) in wanted.iter_mut().rev().enumerate() {
        if *size == TDim::Val(0) {
            let own = from.len().checked_sub(at + 1);
            *size = own.map_or(TDim::Val(1), |own| from[own].clone());
        }
    }
    let args = vec![x.into(), CallArg::Ints(wanted)];
    lowering.aten_result("aten::view_copy.out", args, x.dtype)
}

fn expand(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let axes = lowering.required_ints(operation, "axes")?;
    if let CoremlOperand::Sizes {
        sizes,
        is_number: true,
    } = lowering.held_arg(operation, "x")?
        && axes.len() == 1
    {
        let is_number = false;
        return Ok(vec![CoremlOperand::Sizes { sizes, is_number }]);
    }
    let x = lowering.tensor(operation, "x")?;
    let rank = lowering.shape(x)?.len() + axes.len();
    let mut axes = axes_of(&axes, rank)?;
    axes.sort_unstable();
    let mut outlet = x.outlet;
    for axis in axes {
        outlet = lowering.frame.builder.wire(AxisOp::Add(axis), &[outlet])?;
    }
    Ok(one(Wire { outlet, ..x }))
}

fn squeeze(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    if let CoremlOperand::Sizes { sizes, .. } = lowering.held_arg(operation, "x")?
        && sizes.len() == 1
    {
        let is_number = true;
        return Ok(vec![CoremlOperand::Sizes { sizes, is_number }]);
    }
    let x = lowering.tensor(operation, "x")?;
    let shape = lowering.shape(x)?;
    let axes = match lowering.axes(operation, shape.len())? {
        Some(axes) => axes,
        None => (0..shape.len())
            .filter(|&axis| shape[axis].is_one())
            .collect(),
    };
    let outlet = lowering.frame.builder.remove(x.outlet, &axes)?;
    Ok(one(Wire { outlet, ..x }))
}

fn transpose(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let rank = lowering.shape(x)?.len();
    let order = lowering.required_ints(operation, "perm")?;
    let order = axes_of(&order, rank)?;
    let outlet = lowering.frame.builder.transpose(x.outlet, &order)?;
    Ok(one(Wire { outlet, ..x }))
}

/// Stacks sizes or known numbers into a list.
fn stacked_sizes(
    lowering: &CoremlLowering<'_, '_>,
    operation: &Operation,
) -> TractResult<Option<CoremlOperand>> {
    let held = lowering.all(operation, "values")?;
    let has_sizes = held
        .iter()
        .any(|held| matches!(held, CoremlOperand::Sizes { .. }));
    let mut list = Vec::new();
    for held in held.iter().filter(|_| has_sizes) {
        if lowering.rank_of(held)? > 0 {
            return Ok(None);
        }
        let Some(sizes) = lowering.sizes_of(held)? else {
            return Ok(None);
        };
        list.extend(sizes);
    }
    let is_number = false;
    Ok(has_sizes.then_some(CoremlOperand::Sizes {
        sizes: list,
        is_number,
    }))
}

/// Concatenates tensors or sizes.
fn concat(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    if lowering.bool(operation, "interleave", false)? {
        return interleaved(lowering, operation);
    }
    let held = lowering.all(operation, "values")?;
    if held
        .iter()
        .any(|held| matches!(held, CoremlOperand::Sizes { .. }))
    {
        let parts = held.iter().map(|held| lowering.as_sizes(held));
        let parts: Option<Vec<Vec<TDim>>> = parts.collect::<TractResult<_>>()?;
        if let Some(parts) = parts {
            let (sizes, is_number) = (parts.concat(), false);
            return Ok(vec![CoremlOperand::Sizes { sizes, is_number }]);
        }
    }
    let dtype = lowering.dtype(operation)?;
    let mut wires = Vec::new();
    for held in &held {
        let wire = lowering.wire(held)?;
        let mut wire = lowering.frame.builder.cast(wire, dtype)?;
        // Numbers are concatenated to a list.
        wire.outlet = lowering.frame.builder.with_rank(wire.outlet, 1)?;
        wires.push(wire);
    }
    let axis = lowering.int(operation, "axis", 0)?;
    let args = vec![CallArg::Tensors(wires), axis.into()];
    lowering.aten_result("aten::cat.out", args, dtype)
}

/// Interleaves tensors along a dimension: the first positions of all tensors, then the second ones,
/// and so on.
fn interleaved(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let wires = wires(lowering, operation)?;
    let first = *wires.first().context("no tensors to join")?;
    let mut shape = lowering.shape(first)?;
    let axis = lowering.axis(operation, "axis", shape.len())?;
    shape[axis] = shape[axis].clone() * wires.len();
    let dtype = lowering.dtype(operation)?;
    let args = vec![CallArg::Tensors(wires), i64::try_from(axis + 1)?.into()];
    let wire = lowering.aten("aten::stack.out", args, dtype)?;
    lowering.reshaped(wire, &shape).map(one)
}

fn split(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let shape = lowering.shape(x)?;
    let axis = lowering.axis(operation, "axis", shape.len())?;
    let sizes = if let Some(sizes) = lowering.sizes(operation, "split_sizes")? {
        sizes
    } else {
        let count = operation.outputs.len();
        let size = shape[axis].to_usize()?;
        ensure!(
            count > 0 && size.is_multiple_of(count),
            "size {size} is not divisible into {count} parts"
        );
        vec![(size / count).to_dim(); count]
    };
    let outs = [CallResult::Tensors(vec![x.dtype; sizes.len()])];
    let args = vec![x.into(), CallArg::Ints(sizes), i64::try_from(axis)?.into()];
    let given = lowering
        .caller()
        .call("aten::split_with_sizes_copy.out", args, &outs)?;
    let given = given.into_iter().map(|slot| match slot {
        FrameSlot::Tensor(wire) => Ok(CoremlOperand::Tensor(wire)),
        _ => bail!("an output is not a tensor"),
    });
    given.collect()
}

/// Lowers padding. The pairs are for the last dimensions, outermost first; `ATen` expects innermost
/// first.
fn pad(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let mode = lowering.text(operation, "mode", "constant")?;
    let x = lowering.tensor(operation, "x")?;
    let pads = lowering.required_ints(operation, "pad")?;
    let mut shape = lowering.shape(x)?;
    let (pairs, rest) = pads.as_chunks::<2>();
    ensure!(
        rest.is_empty()
            && pairs.len() <= shape.len()
            && pads.iter().all(|pad| (0..=1 << 30).contains(pad)),
        "invalid padding {pads:?} of {} dimensions",
        shape.len()
    );
    let first = shape.len() - pairs.len();
    for (size, [before, after]) in shape[first..].iter_mut().zip(pairs) {
        *size = size.clone() + *before + *after;
    }
    check_size(&shape)?;
    if mode == "constant" {
        let value = lowering.float(operation, "constant_val", 0.0)?;
        return padded(lowering, x, &pads, value).map(one);
    }
    let mut wire = x;
    for (at, [before, after]) in pairs.iter().enumerate() {
        wire = match mode.as_str() {
            "reflect" => reflected(lowering, wire, first + at, *before, *after)?,
            "replicate" => replicated(lowering, wire, first + at, *before, *after)?,
            _ => bail!("unsupported padding mode `{mode}`"),
        };
    }
    Ok(one(wire))
}

/// Pads a dimension with reflected elements, without repeating the edges.
fn reflected(
    lowering: &mut CoremlLowering<'_, '_>,
    x: Wire,
    axis: usize,
    before: i64,
    after: i64,
) -> TractResult<Wire> {
    let size = lowering.shape(x)?[axis].clone();
    let last = size - 1;
    let ends = [
        (1.to_dim(), 1.to_dim() + before),
        ((last.clone() - after).reduce(), last),
    ];
    let mut parts = Vec::new();
    for (start, end) in ends {
        let builder = &mut lowering.frame.builder;
        let outlet = builder.slice(x.outlet, axis, start, end)?;
        let part = Wire { outlet, ..x };
        let args = vec![part.into(), CallArg::Ints(vec![axis.to_dim()])];
        parts.push(lowering.aten("aten::flip.out", args, x.dtype)?.outlet);
    }
    let outlet = lowering
        .builder()
        .concat(&[parts[0], x.outlet, parts[1]], axis)?;
    Ok(Wire { outlet, ..x })
}

/// Pads a dimension by repeating its edges.
fn replicated(
    lowering: &mut CoremlLowering<'_, '_>,
    x: Wire,
    axis: usize,
    before: i64,
    after: i64,
) -> TractResult<Wire> {
    let mut shape = lowering.shape(x)?;
    let size = shape[axis].clone();
    let builder = &mut lowering.frame.builder;
    let mut edge = |start: TDim, end: TDim, count: i64| {
        let outlet = builder.slice(x.outlet, axis, start, end)?;
        shape[axis] = count.to_dim();
        builder.expand(outlet, &shape)
    };
    let first = edge(0.to_dim(), 1.to_dim(), before)?;
    let last = edge((size.clone() - 1).reduce(), size, after)?;
    let outlet = builder.concat(&[first, x.outlet, last], axis)?;
    Ok(Wire { outlet, ..x })
}

/// Pads the last dimensions with a number.
pub(super) fn padded(
    lowering: &mut CoremlLowering<'_, '_>,
    x: Wire,
    pads: &[i64],
    value: f64,
) -> TractResult<Wire> {
    let (pairs, rest) = pads.as_chunks::<2>();
    ensure!(
        rest.is_empty(),
        "invalid padding: expected pairs, got {} numbers",
        pads.len()
    );
    let inner: Vec<i64> = pairs.iter().rev().flatten().copied().collect();
    let args = vec![x.into(), CallArg::from(inner.as_slice()), value.into()];
    lowering.aten("aten::constant_pad_nd.out", args, x.dtype)
}

/// Crops rows and columns on both sides.
fn crop(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let mut wire = x;
    for (name, from_end) in [("crop_height", 2), ("crop_width", 1)] {
        let shape = lowering.shape(wire)?;
        ensure!(
            shape.len() >= 2,
            "invalid rank of a cropped tensor: {}",
            shape.len()
        );
        let axis = shape.len() - from_end;
        let Some([before, after]) = lowering.ints(operation, name)?.map(|ints| {
            [
                ints.first().copied().unwrap_or(0),
                ints.get(1).copied().unwrap_or(0),
            ]
        }) else {
            continue;
        };
        let end = shape[axis].clone() - after;
        wire.outlet = lowering.builder().slice(wire.outlet, axis, before, end)?;
    }
    Ok(one(wire))
}

/// The dtype of indices.
pub(super) const INDEX: DType = DType::Int64;
