//! Lowers shape changes: views, permutations, concatenation, repetition, padding.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::{Pad, PadMode};

use super::super::builder::Wire;
use super::call::{LoweringTable, OperatorCall, axis_of};
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (
        &[
            "aten::view_copy.out",
            "executorch_prim::et_view.default",
            "aten::reshape.out",
            "aten::_unsafe_view.out",
            "aten::_reshape_copy.out",
        ],
        view,
    ),
    (&["aten::permute_copy.out"], permute),
    (&["aten::transpose_copy.int_out"], transpose),
    (&["aten::t_copy.out"], |call| {
        let input = call.tensor(0)?;
        let order: &[usize] = if call.rank(input)? == 2 {
            &[1, 0]
        } else {
            &[0]
        };
        ordered(call, input, order)
    }),
    (&["aten::unsqueeze_copy.out"], unsqueeze),
    (
        &["aten::squeeze_copy.dim_out", "aten::squeeze_copy.dims_out"],
        squeeze,
    ),
    (&["aten::expand_copy.out"], expand),
    (&["aten::repeat.out"], repeat),
    (&["aten::cat.out"], cat),
    (&["aten::stack.out"], stack),
    (&["aten::constant_pad_nd.out"], pad),
];

/// Sets the only output.
pub(super) fn set_only_output(
    call: &mut OperatorCall<'_, '_>,
    outlet: OutletId,
    dtype: DType,
) -> TractResult<()> {
    call.set_result(Wire { outlet, dtype })
}

/// Resolves a size of -1 to the number of remaining elements.
fn resolve_sizes(from: &[TDim], wanted: Vec<TDim>) -> TractResult<Vec<TDim>> {
    let open = wanted.iter().position(|dim| *dim == TDim::Val(-1));
    let Some(open) = open else { return Ok(wanted) };
    let all = from.iter().cloned().product::<TDim>();
    let mut rest = TDim::Val(1);
    for (at, dim) in wanted.iter().enumerate() {
        if at != open {
            rest *= dim;
        }
    }
    let (quotient, divisor) = all.maybe_div(&rest)?;
    ensure!(divisor == 1, "cannot reshape {all} elements to {wanted:?}");
    let mut complete = wanted;
    complete[open] = quotient;
    Ok(complete)
}

fn view(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let wanted = call.dims(1)?;
    let shape = resolve_sizes(&call.shape(input)?, wanted)?;
    let outlet = call.frame.builder.reshape(input.outlet, &shape)?;
    set_only_output(call, outlet, input.dtype)
}

fn ordered(call: &mut OperatorCall<'_, '_>, input: Wire, order: &[usize]) -> TractResult<()> {
    let outlet = call.frame.builder.transpose(input.outlet, order)?;
    set_only_output(call, outlet, input.dtype)
}

fn permute(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    let dims = call.ints(1)?;
    let order = dims.into_iter().map(|dim| axis_of(dim, rank));
    let order: Vec<usize> = order.collect::<TractResult<_>>()?;
    ordered(call, input, &order)
}

fn transpose(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    if rank == 0 {
        return ordered(call, input, &[]);
    }
    let (a, b) = (call.axis(1, rank)?, call.axis(2, rank)?);
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(a, b);
    ordered(call, input, &order)
}

fn unsqueeze(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    let axis = call.axis(1, rank + 1)?;
    let outlet = call.wire(AxisOp::Add(axis), &[input.outlet])?;
    set_only_output(call, outlet, input.dtype)
}

fn squeeze(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let mut axes = Vec::new();
    for axis in call.ints(1)? {
        let axis = axis_of(axis, shape.len())?;
        if shape.get(axis).is_some_and(TDim::is_one) {
            axes.push(axis);
        }
    }
    let outlet = call.frame.builder.remove(input.outlet, &axes)?;
    set_only_output(call, outlet, input.dtype)
}

fn expand(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let from = call.shape(input)?;
    let mut shape = call.dims(1)?;
    let offset = shape.len() - from.len().min(shape.len());
    for (at, dim) in shape.iter_mut().enumerate() {
        if *dim == TDim::Val(-1) {
            ensure!(at >= offset, "invalid size -1 of a new dimension");
            *dim = from[at - offset].clone();
        }
    }
    call.check_room(call.out(), &shape)?;
    let outlet = call.frame.builder.expand(input.outlet, &shape)?;
    set_only_output(call, outlet, input.dtype)
}

fn repeat(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let counts = call.dims(1)?;
    let outlet = call.frame.builder.with_rank(input.outlet, counts.len())?;
    let shape = call.frame.builder.shape(outlet)?;
    ensure!(
        shape.len() == counts.len(),
        "expected a repeat count for each dimension, got {} counts for {}",
        counts.len(),
        shape.len()
    );
    let repeated = shape.iter().zip(&counts);
    let repeated: Vec<TDim> = repeated
        .map(|(size, count)| size.clone() * count.clone())
        .collect();
    call.check_room(call.out(), &repeated)?;
    // Each dimension is repeated along a new dimension inserted before it.
    let mut outlet = outlet;
    for (at, count) in counts.iter().enumerate() {
        if count.is_one() {
            continue;
        }
        let builder = &mut call.frame.builder;
        let mut split = builder.shape(outlet)?;
        split.insert(at, TDim::Val(1));
        let added = builder.wire(AxisOp::Add(at), &[outlet])?;
        split[at] = count.clone();
        let expanded = builder.expand(added, &split)?;
        let size = split.remove(at);
        split[at] = (split[at].clone() * size).reduce();
        outlet = builder.reshape(expanded, &split)?;
    }
    set_only_output(call, outlet, input.dtype)
}

fn cat(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let wires = call.tensors(0)?;
    let out = call.out();
    let dtype = call.out_dtype(out)?;
    let mut outlets = Vec::new();
    let mut rank = 0;
    for wire in wires {
        let shape = call.shape(wire)?;
        // An empty vector can be concatenated with anything.
        if shape.len() == 1 && shape[0] == TDim::Val(0) {
            continue;
        }
        rank = shape.len();
        outlets.push(call.frame.builder.cast(wire, dtype)?.outlet);
    }
    let axis = call.axis(1, rank)?;
    let outlet = call.frame.builder.concat(&outlets, axis)?;
    set_only_output(call, outlet, dtype)
}

fn stack(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let wires = call.tensors(0)?;
    let out = call.out();
    let dtype = call.out_dtype(out)?;
    let rank = wires.first().map_or(Ok(0), |wire| call.rank(*wire))?;
    let axis = call.axis(1, rank + 1)?;
    let mut outlets = Vec::new();
    for wire in wires {
        let wire = call.frame.builder.cast(wire, dtype)?;
        outlets.push(call.wire(AxisOp::Add(axis), &[wire.outlet])?);
    }
    let outlet = call.frame.builder.concat(&outlets, axis)?;
    set_only_output(call, outlet, dtype)
}

fn pad(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    let pads = call.ints(1)?;
    ensure!(
        pads.len().is_multiple_of(2) && pads.len() <= 2 * rank,
        "invalid number of paddings: {}",
        pads.len()
    );
    let value = call.double(2)?;
    let mut outlet = input.outlet;
    let mut grown = vec![(0, 0); rank];
    for (pair, both) in pads.chunks(2).enumerate() {
        let axis = rank - 1 - pair;
        // Negative padding crops.
        let shape = call.frame.builder.shape(outlet)?;
        let start = (-both[0]).max(0).to_dim();
        let end = (shape[axis].clone() + both[1].min(0)).reduce();
        outlet = call.frame.builder.slice(outlet, axis, start, end)?;
        grown[axis] = (
            usize::try_from(both[0].max(0))?,
            usize::try_from(both[1].max(0))?,
        );
    }
    if grown.iter().any(|pads| *pads != (0, 0)) {
        let value = super::super::builder::number(value, input.dtype)?;
        let op = Pad {
            pads: grown,
            mode: PadMode::Constant(Arc::new(value)),
        };
        outlet = call.wire(op, &[outlet])?;
    }
    set_only_output(call, outlet, input.dtype)
}
