//! Lowers sorting, positions of extremes, and distances.

use tract_onnx::tract_core::internal::*;

use super::super::builder::{Wire, check_rank};
use super::super::datum_type;
use super::call::{LoweringTable, OperatorCall};
use super::elements::{floats, gather_elements, tensor_of_floats};
use crate::graph::kernel::Kernel;
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::max.dim_max"], |call| {
        extreme_with_position(call, true)
    }),
    (&["aten::min.dim_min"], |call| {
        extreme_with_position(call, false)
    }),
    (&["aten::argmax.out"], |call| place(call, true)),
    (&["aten::argmin.out"], |call| place(call, false)),
    (&["aten::topk.values"], top_k),
    (&["aten::sort.values"], |call| sort(call, 1, 2, 3)),
    (&["aten::sort.values_stable"], |call| sort(call, 2, 3, 4)),
    (&["aten::_cdist_forward.out"], distances),
    (&["aten::_pdist_forward.out"], own_distances),
];

/// Returns the positions of a line's values in sorted order; NaN is larger than any number.
fn sorted_positions(line: &[f64], descending: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..line.len()).collect();
    let compare = |a: &usize, b: &usize| match (line[*a].is_nan(), line[*b].is_nan()) {
        (true, true) => std::cmp::Ordering::Equal,
        (true, false) => std::cmp::Ordering::Greater,
        (false, true) => std::cmp::Ordering::Less,
        _ => line[*a].total_cmp(&line[*b]),
    };
    if descending {
        order.sort_by(|a, b| compare(b, a));
    } else {
        order.sort_by(compare);
    }
    order
}

/// Chooses positions of each line along an axis. Returns source positions, positions along the
/// axis, and the shape.
fn places(
    input: &Tensor,
    axis: usize,
    choose: impl Fn(&[f64]) -> Vec<usize>,
    count: usize,
) -> TractResult<(Vec<usize>, Vec<i64>, Vec<usize>)> {
    let shape = input.shape();
    let values = floats(input)?;
    let size = shape.get(axis).copied().unwrap_or(1);
    let inner: usize = shape.iter().skip(axis + 1).product();
    let outer: usize = shape.iter().take(axis).product();
    let mut from = vec![0; outer * count * inner];
    let mut chosen = vec![0_i64; from.len()];
    let mut line = vec![0.0; size];
    for before in 0..outer {
        for after in 0..inner {
            let start = before * size * inner + after;
            for (at, value) in line.iter_mut().enumerate() {
                *value = values[start + at * inner];
            }
            let places = choose(&line);
            ensure!(
                places.len() >= count,
                "cannot take {count} elements of a dimension of {size}"
            );
            for (at, place) in places.into_iter().take(count).enumerate() {
                let to = before * count * inner + at * inner + after;
                from[to] = start + place * inner;
                chosen[to] = i64::try_from(place)?;
            }
        }
    }
    let mut to = shape.to_vec();
    if let Some(size) = to.get_mut(axis) {
        *size = count;
    }
    Ok((from, chosen, to))
}

/// Outputs the values and positions of each line's chosen elements.
fn chosen(
    call: &mut OperatorCall<'_, '_>,
    axis: usize,
    count: TDim,
    choose: impl Fn(&[f64]) -> Vec<usize> + Send + Sync + 'static,
) -> TractResult<(Wire, Wire)> {
    let input = call.tensor(0)?;
    let mut shape = call.shape(input)?;
    let fixed = count.to_usize().ok();
    if let Some(size) = shape.get_mut(axis) {
        *size = count;
    }
    let facts = tvec!(datum_type(input.dtype).fact(&shape), i64::fact(&shape));
    let kernel = Kernel::new("Order", facts, move |inputs| {
        let input = &inputs[0];
        let count = fixed.unwrap_or_else(|| input.shape()[axis]);
        let (from, places, shape) = places(input, axis, &choose, count)?;
        Ok(tvec!(
            gather_elements(input, &shape, &from)?,
            Tensor::from_shape(&shape, &places)?
        ))
    });
    let outlets = call.frame.builder.wire_all(kernel, &[input.outlet])?;
    let values = Wire::new(outlets[0], input.dtype);
    let places = Wire::new(outlets[1], DType::Int64);
    Ok((values, places))
}

/// Returns the position of the largest or smallest element, or of the first NaN. Ties go to the
/// first one.
pub(super) fn first_extreme(
    largest: bool,
) -> impl Fn(&[f64]) -> Vec<usize> + Send + Sync + 'static {
    move |line| {
        let mut best: Option<usize> = None;
        for (at, value) in line.iter().enumerate() {
            let better = best.is_none_or(|best: usize| {
                let known = line[best];
                !known.is_nan()
                    && (value.is_nan()
                        || if largest {
                            *value > known
                        } else {
                            *value < known
                        })
            });
            if better {
                best = Some(at);
            }
        }
        best.into_iter().collect()
    }
}

fn without(
    call: &mut OperatorCall<'_, '_>,
    wire: Wire,
    axis: usize,
    keep: bool,
) -> TractResult<Wire> {
    if keep || call.rank(wire)? == 0 {
        return Ok(wire);
    }
    let outlet = call.wire(AxisOp::Rm(axis), &[wire.outlet])?;
    Ok(Wire { outlet, ..wire })
}

fn extreme_with_position(call: &mut OperatorCall<'_, '_>, largest: bool) -> TractResult<()> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    let axis = call.axis(1, rank)?;
    let keep = call.bool(2)?;
    let (values, places) = chosen(call, axis, TDim::Val(1), first_extreme(largest))?;
    let values = without(call, values, axis, keep)?;
    let places = without(call, places, axis, keep)?;
    call.set_output(3, values)?;
    call.set_output(4, places)
}

fn place(call: &mut OperatorCall<'_, '_>, largest: bool) -> TractResult<()> {
    let input = call.tensor(0)?;
    if call.is_none(1)? {
        // The extreme of all elements, with its row-major position.
        let wire = call.kernel("Place", DType::Int64, &[], &[input.outlet], move |inputs| {
            let place = first_extreme(largest)(&floats(&inputs[0])?);
            let Some(place) = place.first() else {
                bail!("cannot take the extreme of an empty tensor")
            };
            Ok(tensor0(i64::try_from(*place)?))
        })?;
        let keep = call.bool(2)?;
        let rank = if keep { call.rank(input)? } else { 0 };
        let outlet = call.frame.builder.with_rank(wire.outlet, rank)?;
        return call.set_output(3, Wire { outlet, ..wire });
    }
    let rank = call.rank(input)?;
    let axis = call.axis(1, rank)?;
    let keep = call.bool(2)?;
    let (_, places) = chosen(call, axis, TDim::Val(1), first_extreme(largest))?;
    let places = without(call, places, axis, keep)?;
    call.set_output(3, places)
}

fn top_k(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    let count = call.dim(1)?;
    let axis = call.axis(2, rank)?;
    let largest = call.bool(3)?;
    let (values, places) = chosen(call, axis, count, move |line| {
        sorted_positions(line, largest)
    })?;
    call.set_output(5, values)?;
    call.set_output(6, places)
}

fn sort(
    call: &mut OperatorCall<'_, '_>,
    dim: usize,
    descending: usize,
    out: usize,
) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let axis = call.axis(dim, shape.len())?;
    let descending = call.bool(descending)?;
    let count = shape.get(axis).cloned().unwrap_or(TDim::Val(1));
    let (values, places) = chosen(call, axis, count, move |line| {
        sorted_positions(line, descending)
    })?;
    call.set_output(out, values)?;
    call.set_output(out + 1, places)
}

/// Returns the distance of two vectors in the `p` norm.
fn distance(a: &[f64], b: &[f64], p: f64) -> f64 {
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    if p == 0.0 {
        return differences.map(|x| if x == 0.0 { 0.0 } else { 1.0 }).sum();
    }
    if p.is_infinite() {
        return differences.fold(0.0, f64::max);
    }
    differences.map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p)
}

/// Computes the distances between all rows of two matrices, for each batch.
fn distances(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let (a, b) = (
        call.tensor_as(0, DType::Float32)?,
        call.tensor_as(1, DType::Float32)?,
    );
    let p = call.double(2)?;
    let (left, right) = (call.frame.builder.shape(a)?, call.frame.builder.shape(b)?);
    ensure!(
        left.len() == right.len() && left.len() >= 2,
        "ranks of the matrices differ or are below 2"
    );
    let rank = left.len();
    let mut shape = left.clone();
    shape[rank - 1] = right[rank - 2].clone();
    ensure!(
        left[..rank - 2] == right[..rank - 2],
        "batch sizes of the matrices differ"
    );
    let wire = call.kernel(
        "Distances",
        DType::Float32,
        &shape,
        &[a, b],
        move |inputs| {
            let (left, right) = (inputs[0].shape(), inputs[1].shape());
            let (m, n, width) = (left[rank - 2], right[rank - 2], left[rank - 1]);
            let (a, b) = (floats(&inputs[0])?, floats(&inputs[1])?);
            let mut found = Vec::new();
            for (a, b) in a
                .chunks((m * width).max(1))
                .zip(b.chunks((n * width).max(1)))
            {
                for a in a.chunks(width.max(1)) {
                    found.extend(b.chunks(width.max(1)).map(|b| distance(a, b, p)));
                }
            }
            let mut shape = left.to_vec();
            shape[rank - 1] = n;
            tensor_of_floats(&shape, &found, DatumType::F32)
        },
    )?;
    call.set_result(wire)
}

/// Computes the distances between all pairs of rows of a matrix.
fn own_distances(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let p = call.double(1)?;
    let shape = call.frame.builder.shape(input)?;
    check_rank(&shape, 2, "a matrix")?;
    let rows = shape[0].to_i64()?;
    let count = [(rows * (rows - 1) / 2).max(0).to_dim()];
    let wire = call.kernel(
        "Distances",
        DType::Float32,
        &count,
        &[input],
        move |inputs| {
            let width = inputs[0].shape()[1].max(1);
            let values = floats(&inputs[0])?;
            let rows: Vec<&[f64]> = values.chunks(width).collect();
            let mut found = Vec::new();
            for (at, a) in rows.iter().enumerate() {
                found.extend(rows[at + 1..].iter().map(|b| distance(a, b, p)));
            }
            tensor_of_floats(&[found.len()], &found, DatumType::F32)
        },
    )?;
    call.set_result(wire)
}
