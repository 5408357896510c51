//! Lowers operators that move elements: flips, rolls, strided views, triangles, pixel shuffles.

use tract_onnx::tract_core::internal::*;

use super::super::builder::Wire;
use super::call::{LoweringTable, OperatorCall};
use super::elements::{gather_elements, places, strides};
use super::shape::set_only_output;
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::flip.out"], flip),
    (&["aten::roll.out"], roll),
    (&["aten::as_strided_copy.out"], as_strided),
    (&["aten::diagonal_copy.out"], diagonal),
    (&["aten::unfold_copy.out"], unfold),
    (&["aten::tril.out"], |call| triangle(call, false)),
    (&["aten::triu.out"], |call| triangle(call, true)),
    (&["aten::pixel_shuffle.out"], pixel_shuffle),
    (&["aten::pixel_unshuffle.out"], pixel_unshuffle),
];

/// Gathers elements by positions that depend only on the input's shape.
fn gathered(
    call: &mut OperatorCall<'_, '_>,
    input: Wire,
    shape: &[TDim],
    rule: impl Fn(&[usize]) -> TractResult<(Vec<usize>, Vec<usize>)> + Send + Sync + 'static,
) -> TractResult<()> {
    let wire = call.kernel("Pick", input.dtype, shape, &[input.outlet], move |inputs| {
        let (shape, from) = rule(inputs[0].shape())?;
        gather_elements(&inputs[0], &shape, &from)
    })?;
    set_only_output(call, wire.outlet, input.dtype)
}

fn flip(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let rank = shape.len();
    let axes = call.listed_axes(1, rank)?;
    gathered(call, input, &shape, move |shape| {
        let own = strides(shape);
        let from = places(shape, &own);
        let turned = from.into_iter().map(|place| {
            let mut turned = place;
            for &axis in &axes {
                let at = place / own[axis] % shape[axis];
                turned = turned + (shape[axis] - 1 - at) * own[axis] - at * own[axis];
            }
            turned
        });
        Ok((shape.to_vec(), turned.collect()))
    })
}

fn roll(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let rank = shape.len();
    let shifts = call.ints(1)?;
    let dims = call.listed_axes(2, rank)?;
    ensure!(
        dims.len() == shifts.len(),
        "numbers of shifts and dimensions differ: {} and {}",
        shifts.len(),
        dims.len()
    );
    gathered(call, input, &shape, move |shape| {
        let own = strides(shape);
        let from = places(shape, &own);
        let mut rolled = Vec::with_capacity(from.len());
        for place in from {
            let mut other = place;
            for (&axis, &shift) in dims.iter().zip(&shifts) {
                let size = i64::try_from(shape[axis])?;
                let at = other / own[axis] % shape[axis];
                let was = usize::try_from((i64::try_from(at)? - shift).rem_euclid(size))?;
                other = other - at * own[axis] + was * own[axis];
            }
            rolled.push(other);
        }
        Ok((shape.to_vec(), rolled))
    })
}

fn as_strided(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let (sizes, steps) = (call.sizes(1)?, call.sizes(2)?);
    let offset = usize::try_from(call.optional_int(3)?.unwrap_or(0))?;
    ensure!(
        sizes.len() == steps.len(),
        "numbers of strides and sizes differ: {} and {}",
        steps.len(),
        sizes.len()
    );
    let shape: Vec<TDim> = sizes.iter().map(ToDim::to_dim).collect();
    gathered(call, input, &shape, move |_| {
        let from = places(&sizes, &steps)
            .into_iter()
            .map(|place| place + offset);
        Ok((sizes.clone(), from.collect()))
    })
}

fn diagonal(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let offset = call.int(1)?;
    let (a, b) = (call.axis(2, shape.len())?, call.axis(3, shape.len())?);
    ensure!(a != b, "a diagonal needs two different dimensions");
    let (rows, columns) = (shape[a].to_i64()?, shape[b].to_i64()?);
    let length = (rows + offset.min(0)).min(columns - offset.max(0)).max(0);
    let mut sizes: Vec<TDim> = shape.clone();
    sizes.remove(a.max(b));
    sizes.remove(a.min(b));
    sizes.push(length.to_dim());
    gathered(call, input, &sizes, move |shape| {
        let own = strides(shape);
        let first =
            usize::try_from((-offset).max(0))? * own[a] + usize::try_from(offset.max(0))? * own[b];
        let keep = |at: &usize| *at != a && *at != b;
        let kept: Vec<usize> = (0..shape.len()).filter(keep).collect();
        let mut sizes: Vec<usize> = kept.iter().map(|&at| shape[at]).collect();
        let mut steps: Vec<usize> = kept.iter().map(|&at| own[at]).collect();
        sizes.push(usize::try_from(length)?);
        steps.push(own[a] + own[b]);
        let from = places(&sizes, &steps)
            .into_iter()
            .map(|place| place + first);
        Ok((sizes.clone(), from.collect()))
    })
}

fn unfold(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let axis = call.axis(1, shape.len())?;
    let (size, step) = (
        usize::try_from(call.int(2)?)?,
        usize::try_from(call.int(3)?)?,
    );
    let all = shape[axis].to_usize()?;
    ensure!(
        step > 0 && size <= all,
        "invalid windows: size {size}, step {step}, in a dimension of {all}"
    );
    let count = (all - size) / step + 1;
    let mut sizes = shape.clone();
    sizes[axis] = count.to_dim();
    sizes.push(size.to_dim());
    gathered(call, input, &sizes, move |shape| {
        let mut steps = strides(shape);
        let mut sizes = shape.to_vec();
        steps.push(steps[axis]);
        sizes.push(size);
        steps[axis] *= step;
        sizes[axis] = count;
        Ok((sizes.clone(), places(&sizes, &steps)))
    })
}

fn triangle(call: &mut OperatorCall<'_, '_>, upper: bool) -> TractResult<()> {
    let input = call.tensor(0)?;
    let k = call.int(1)?;
    let k = call
        .builder()
        .constant(Arc::new(tensor0(k)), DType::Int64)?;
    let op = tract_onnx::tract_core::ops::array::Trilu { upper };
    let outlet = call.wire(op, &[input.outlet, k.outlet])?;
    set_only_output(call, outlet, input.dtype)
}

/// `[.., c · r², h, w]` → `[.., c, h · r, w · r]`
fn pixel_shuffle(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let factor = call.int(1)?;
    ensure!(
        shape.len() >= 3 && factor > 0,
        "invalid pixel shuffle of {} dimensions",
        shape.len()
    );
    let (lead, [c, h, w]) = image_dims(&shape)?;
    let channels = c.to_i64()?;
    ensure!(
        channels % (factor * factor) == 0,
        "{channels} channels are not divisible by the square of the factor {factor}"
    );
    let mut split = lead.to_vec();
    split.extend([
        (channels / factor / factor).to_dim(),
        factor.to_dim(),
        factor.to_dim(),
        h.clone(),
        w.clone(),
    ]);
    let n = lead.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.extend([n, n + 3, n + 1, n + 4, n + 2]);
    let mut joined = lead.to_vec();
    joined.extend([
        (channels / factor / factor).to_dim(),
        (h.clone() * factor).reduce(),
        (w.clone() * factor).reduce(),
    ]);
    let builder = &mut call.frame.builder;
    let outlet = builder.reshape(input.outlet, &split)?;
    let outlet = builder.transpose(outlet, &order)?;
    let outlet = builder.reshape(outlet, &joined)?;
    set_only_output(call, outlet, input.dtype)
}

/// `[.., c, h · r, w · r]` → `[.., c · r², h, w]`
fn pixel_unshuffle(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let factor = call.int(1)?;
    let (lead, [c, h, w]) = image_dims(&shape)?;
    let (rows, columns) = (h.to_i64()?, w.to_i64()?);
    ensure!(
        factor > 0 && rows % factor == 0 && columns % factor == 0,
        "an image of {rows} × {columns} is not divisible by the factor {factor}"
    );
    let (rows, columns) = (rows / factor, columns / factor);
    let mut split = lead.to_vec();
    split.extend([
        c.clone(),
        rows.to_dim(),
        factor.to_dim(),
        columns.to_dim(),
        factor.to_dim(),
    ]);
    let n = lead.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.extend([n, n + 2, n + 4, n + 1, n + 3]);
    let mut joined = lead.to_vec();
    joined.extend([
        (c.clone() * factor * factor).reduce(),
        rows.to_dim(),
        columns.to_dim(),
    ]);
    let builder = &mut call.frame.builder;
    let outlet = builder.reshape(input.outlet, &split)?;
    let outlet = builder.transpose(outlet, &order)?;
    let outlet = builder.reshape(outlet, &joined)?;
    set_only_output(call, outlet, input.dtype)
}

fn image_dims(shape: &[TDim]) -> TractResult<(&[TDim], &[TDim; 3])> {
    match shape.split_last_chunk::<3>() {
        Some(parts) => Ok(parts),
        None => bail!(
            "invalid rank of an image: expected 3 or more, got {}",
            shape.len()
        ),
    }
}
