//! Core ML operations that gather and scatter elements by index lists computed at run time.

use tract_onnx::tract_core::internal::*;

use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::builder::{Wire, axis_of};
use crate::graph::operators::{
    IndexCheck, floats, gather_elements, ints, strides, tensor_of_floats, tensor_of_ints,
};
use crate::tensor::DType;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (&["gather_nd"], gather_nd),
    (&["scatter"], |lowering, operation| {
        let axis = lowering.int(operation, "axis", 0)?;
        scatter_with(lowering, operation, move |shape, indices, check| {
            let axis = axis_of(axis, shape.len())?;
            let own = strides(shape);
            let (size, step) = (shape[axis], own[axis]);
            let outer: usize = shape[..axis].iter().product();
            let mut places = Vec::new();
            for start in 0..outer {
                for index in ints(indices)? {
                    let first = (start * size + check.place(index, size)?) * step;
                    places.extend(first..first + step);
                }
            }
            Ok(places)
        })
    }),
    (&["scatter_along_axis"], |lowering, operation| {
        let axis = lowering.int(operation, "axis", 0)?;
        scatter_with(lowering, operation, move |shape, indices, check| {
            let axis = axis_of(axis, shape.len())?;
            let sizes = indices.shape();
            let same = |at: usize| at == axis || sizes[at] <= shape[at];
            ensure!(
                sizes.len() == shape.len() && (0..sizes.len()).all(same),
                "shape {sizes:?} of the indices does not match the tensor's shape {shape:?}"
            );
            let (own, theirs) = (strides(shape), strides(sizes));
            let indices = ints(indices)?.into_iter().enumerate();
            let places = indices.map(|(at, index)| {
                let mut place = check.place(index, shape[axis])? * own[axis];
                for dim in (0..shape.len()).filter(|dim| *dim != axis) {
                    place += at / theirs[dim] % sizes[dim] * own[dim];
                }
                Ok(place)
            });
            places.collect()
        })
    }),
    (&["scatter_nd"], |lowering, operation| {
        scatter_with(lowering, operation, |shape, indices, check| {
            let (starts, block) = starts(shape, indices, 0, check)?;
            Ok(starts
                .into_iter()
                .flat_map(|start| start..start + block)
                .collect())
        })
    }),
];

/// How updates are combined with the previous elements.
#[derive(Debug, Clone, Copy)]
enum ScatterMode {
    Add,
    Div,
    Max,
    Min,
    Mul,
    Sub,
    Update,
}

impl ScatterMode {
    fn read(lowering: &CoremlLowering<'_, '_>, operation: &Operation) -> TractResult<Self> {
        let mode = lowering.text(operation, "mode", "add")?;
        Ok(match mode.as_str() {
            "add" => Self::Add,
            "div" => Self::Div,
            "max" => Self::Max,
            "min" => Self::Min,
            "mul" => Self::Mul,
            "sub" => Self::Sub,
            "update" => Self::Update,
            _ => bail!("unsupported scatter mode `{mode}`"),
        })
    }

    fn of_floats(self, old: f64, new: f64) -> f64 {
        match self {
            Self::Add => old + new,
            Self::Div => old / new,
            Self::Max => old.max(new),
            Self::Min => old.min(new),
            Self::Mul => old * new,
            Self::Sub => old - new,
            Self::Update => new,
        }
    }

    fn of_ints(self, old: i64, new: i64, check: &IndexCheck) -> TractResult<i64> {
        Ok(match self {
            Self::Add => old.wrapping_add(new),
            Self::Div if new == 0 => return check.reject("division by zero".to_owned()),
            Self::Div => old.wrapping_div(new),
            Self::Max => old.max(new),
            Self::Min => old.min(new),
            Self::Mul => old.wrapping_mul(new),
            Self::Sub => old.wrapping_sub(new),
            Self::Update => new,
        })
    }
}

/// Returns the first element that each row of indices selects, and the number of elements in each
/// selection.
///
/// The first `batch` dimensions of tensor and indices are the same.
fn starts(
    shape: &[usize],
    indices: &Tensor,
    batch: usize,
    check: &IndexCheck,
) -> TractResult<(Vec<usize>, usize)> {
    let Some((&depth, rows)) = indices.shape().split_last() else {
        bail!("the indices have no dimensions");
    };
    ensure!(
        batch + depth <= shape.len() && batch <= rows.len() && rows[..batch] == shape[..batch],
        "shape {:?} of the indices does not match the tensor's shape {shape:?}",
        indices.shape()
    );
    let own = strides(shape);
    let of_rows = strides(rows);
    let block: usize = shape[batch + depth..].iter().product();
    let values = ints(indices)?;
    let count: usize = rows.iter().product();
    let mut starts = Vec::with_capacity(count);
    for row in 0..count {
        let mut start = 0;
        for axis in 0..batch {
            start += row / of_rows[axis] % rows[axis] * own[axis];
        }
        for (at, index) in values[row * depth..][..depth].iter().enumerate() {
            let axis = batch + at;
            start += check.place(*index, shape[axis])? * own[axis];
        }
        starts.push(start);
    }
    Ok((starts, block))
}

fn gather_nd(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let indices = lowering.tensor(operation, "indices")?;
    let indices = lowering.frame.builder.cast(indices, DType::Int64)?;
    let batch = usize::try_from(lowering.int(operation, "batch_dims", 0)?)?;
    let (shape, rows) = (lowering.shape(x)?, lowering.shape(indices)?);
    let (depth, rows) = rows
        .split_last()
        .context("the indices have no dimensions")?;
    let rest = batch.checked_add(depth.to_usize()?);
    let rest = rest.and_then(|from| shape.get(from..));
    let rest =
        rest.with_context(|| format!("too many indices: {depth} for {} dimensions", shape.len()))?;
    let to: Vec<TDim> = rows.iter().chain(rest).cloned().collect();
    let inputs = [x.outlet, indices.outlet];
    let check = IndexCheck::new(&operation.kind, true);
    let builder = &mut lowering.frame.builder;
    let wire = builder.kernel("GatherNd", x.dtype, &to, &inputs, move |inputs| {
        let shape = inputs[0].shape();
        let (starts, block) = starts(shape, &inputs[1], batch, &check)?;
        let from = starts.into_iter().flat_map(|start| start..start + block);
        let from: Vec<usize> = from.collect();
        let rows = inputs[1].shape();
        let depth = rows.last().copied().unwrap_or(0);
        let rows = rows[..rows.len() - 1].iter();
        let to: Vec<usize> = rows.chain(&shape[batch + depth..]).copied().collect();
        gather_elements(&inputs[0], &to, &from)
    })?;
    Ok(one(wire))
}

/// Gathers rows along a dimension by indices whose leading batch dimensions are those of the
/// tensor.
pub(super) fn gather_in_batches(
    lowering: &mut CoremlLowering<'_, '_>,
    (x, indices): (Wire, Wire),
    axis: usize,
    batch: usize,
) -> Results {
    let (shape, rows) = (lowering.shape(x)?, lowering.shape(indices)?);
    ensure!(
        batch <= axis && axis < shape.len() && batch <= rows.len(),
        "invalid gather: {batch} batch dimensions, dimension {axis}"
    );
    let mut to = shape[..axis].to_vec();
    to.extend_from_slice(&rows[batch..]);
    to.extend_from_slice(&shape[axis + 1..]);
    let inputs = [x.outlet, indices.outlet];
    let check = IndexCheck::new("gather", true);
    let builder = &mut lowering.frame.builder;
    let wire = builder.kernel("GatherBatches", x.dtype, &to, &inputs, move |inputs| {
        let (shape, rows) = (inputs[0].shape(), inputs[1].shape());
        ensure!(
            shape[..batch] == rows[..batch],
            "shape {rows:?} of the indices does not match the tensor's shape {shape:?}"
        );
        let values = ints(&inputs[1])?;
        let product = |sizes: &[usize]| sizes.iter().product::<usize>();
        let (outer, middle) = (product(&shape[..batch]), product(&shape[batch..axis]));
        let (each, block) = (product(&rows[batch..]), product(&shape[axis + 1..]));
        let size = shape[axis];
        let mut from = Vec::new();
        for at in 0..outer {
            for between in 0..middle {
                for index in &values[at * each..][..each] {
                    let row = (at * middle + between) * size + check.place(*index, size)?;
                    from.extend(row * block..(row + 1) * block);
                }
            }
        }
        let mut to = shape[..axis].to_vec();
        to.extend_from_slice(&rows[batch..]);
        to.extend_from_slice(&shape[axis + 1..]);
        gather_elements(&inputs[0], &to, &from)
    })?;
    Ok(one(wire))
}

/// Combines updates into a tensor. Their positions follow from its shape and the indices, one for
/// each update.
fn scatter_with(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    places: impl Fn(&[usize], &Tensor, &IndexCheck) -> TractResult<Vec<usize>> + Send + Sync + 'static,
) -> Results {
    let mode = ScatterMode::read(lowering, operation)?;
    let data = lowering.tensor(operation, "data")?;
    let indices = lowering.tensor(operation, "indices")?;
    let updates = lowering.tensor(operation, "updates")?;
    let shape = lowering.shape(data)?;
    let builder = &mut lowering.frame.builder;
    let indices = builder.cast(indices, DType::Int64)?;
    let updates = builder.cast(updates, data.dtype)?;
    let inputs = [data.outlet, indices.outlet, updates.outlet];
    let check = IndexCheck::new(&operation.kind, true);
    let wire = builder.kernel("ScatterBy", data.dtype, &shape, &inputs, move |inputs| {
        let (data, updates) = (&inputs[0], &inputs[2]);
        let places = places(data.shape(), &inputs[1], &check)?;
        ensure!(
            places.len() == updates.len(),
            "wrong number of updates: got {} for {} positions",
            updates.len(),
            places.len()
        );
        let dtype = data.datum_type();
        if dtype.is_float() {
            let mut values = floats(data)?;
            for (place, new) in places.into_iter().zip(floats(updates)?) {
                values[place] = mode.of_floats(values[place], new);
            }
            return tensor_of_floats(data.shape(), &values, dtype);
        }
        let mut values = ints(data)?;
        for (place, new) in places.into_iter().zip(ints(updates)?) {
            values[place] = mode.of_ints(values[place], new, &check)?;
        }
        tensor_of_ints(data.shape(), &values, dtype)
    })?;
    Ok(one(wire))
}
