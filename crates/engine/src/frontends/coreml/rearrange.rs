//! Core ML operations that reorder elements.

use tract_onnx::tract_core::internal::*;

use super::held::CoremlOperand;
use super::shape::{INDEX, padded};
use super::{CoremlLowering, Operation, OperationTable, Results, TypedValue, one};
use crate::graph::builder::Wire;
use crate::graph::operators::{gather_elements, ints, strides};
use pkgtool_model::executorch::coreml::ValueContent;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (&["batch_to_space"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let [n, c, h, w] = image_sizes(lowering, x)?;
        let [a, b] = block_sizes(lowering, operation, "block_shape")?;
        let batch = n.divide(a * b)?;
        let split = [
            a.to_dim(),
            b.to_dim(),
            batch.clone(),
            c.clone(),
            h.clone(),
            w.clone(),
        ];
        let to = [batch, c, h * a, w * b];
        let mut wire = split_and_permute(lowering, x, &split, &[2, 3, 4, 0, 5, 1], &to)?;
        let crops = lowering.required_ints(operation, "crops")?;
        ensure!(
            crops.len() == 4,
            "invalid `crops`: expected 4 numbers, got {}",
            crops.len()
        );
        for (at, crop) in crops.as_chunks::<2>().0.iter().enumerate() {
            let size = lowering.shape(wire)?[at + 2].clone();
            let end = (size - crop[1]).reduce();
            let builder = &mut lowering.frame.builder;
            wire.outlet = builder.slice(wire.outlet, at + 2, crop[0], end)?;
        }
        Ok(one(wire))
    }),
    (&["depth_to_space"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let [n, c, h, w] = image_sizes(lowering, x)?;
        let block = block(lowering, operation, "block_size")?;
        let inner = c.divide(block * block)?;
        let side = block.to_dim();
        let split = [
            n.clone(),
            side.clone(),
            side,
            inner.clone(),
            h.clone(),
            w.clone(),
        ];
        let to = [n, inner, h * block, w * block];
        split_and_permute(lowering, x, &split, &[0, 3, 4, 1, 5, 2], &to).map(one)
    }),
    (&["flatten2d"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let shape = lowering.shape(x)?;
        let axis = lowering.int(operation, "axis", 1)?;
        let count = i64::try_from(shape.len())?;
        let axis = if axis < 0 { axis + count } else { axis };
        ensure!(
            (0..=count).contains(&axis),
            "dimension {axis} is out of range for rank {count}"
        );
        let (before, after) = shape.split_at(usize::try_from(axis)?);
        let product = |dims: &[TDim]| dims.iter().cloned().product::<TDim>();
        lowering
            .reshaped(x, &[product(before), product(after)])
            .map(one)
    }),
    (&["pixel_shuffle"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let factor = lowering.int(operation, "upscale_factor", 1)?;
        let args = vec![x.into(), factor.into()];
        lowering.aten_result("aten::pixel_shuffle.out", args, x.dtype)
    }),
    (&["pixel_unshuffle"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let factor = lowering.int(operation, "downscale_factor", 1)?;
        let args = vec![x.into(), factor.into()];
        lowering.aten_result("aten::pixel_unshuffle.out", args, x.dtype)
    }),
    (&["reshape_like"], reshape_like),
    (&["reverse_sequence"], reverse_sequence),
    (&["sliding_windows"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let rank = lowering.shape(x)?.len();
        let axis = lowering.axis(operation, "axis", rank)?;
        let [size, stride] = ["size", "stride"].map(|name| lowering.int(operation, name, 1));
        let args = vec![
            x.into(),
            i64::try_from(axis)?.into(),
            size?.into(),
            stride?.into(),
        ];
        let wire = lowering.aten("aten::unfold_copy.out", args, x.dtype)?;
        // The windows follow their dimension.
        let mut order: Vec<usize> = (0..rank).collect();
        order.insert(axis + 1, rank);
        lowering.permuted(wire, &order).map(one)
    }),
    (&["space_to_batch"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let pads = lowering.required_ints(operation, "paddings")?;
        ensure!(
            pads.len() == 4,
            "invalid `paddings`: expected 4 numbers, got {}",
            pads.len()
        );
        let x = padded(lowering, x, &pads, 0.0)?;
        let [n, c, h, w] = image_sizes(lowering, x)?;
        let [a, b] = block_sizes(lowering, operation, "block_shape")?;
        let (h, w) = (h.divide(a)?, w.divide(b)?);
        let split = [
            n.clone(),
            c.clone(),
            h.clone(),
            a.to_dim(),
            w.clone(),
            b.to_dim(),
        ];
        let to = [n * (a * b), c, h, w];
        split_and_permute(lowering, x, &split, &[3, 5, 0, 1, 2, 4], &to).map(one)
    }),
    (&["space_to_depth"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let [n, c, h, w] = image_sizes(lowering, x)?;
        let block = block(lowering, operation, "block_size")?;
        let (h, w) = (h.divide(block)?, w.divide(block)?);
        let side = block.to_dim();
        let split = [
            n.clone(),
            c.clone(),
            h.clone(),
            side.clone(),
            w.clone(),
            side,
        ];
        let to = [n, c * (block * block), h, w];
        split_and_permute(lowering, x, &split, &[0, 3, 5, 1, 2, 4], &to).map(one)
    }),
];

/// Exact division of sizes, as far as they are known.
trait Divide: Sized {
    fn divide(&self, by: i64) -> TractResult<Self>;
}

impl Divide for TDim {
    fn divide(&self, by: i64) -> TractResult<Self> {
        if let Ok(size) = self.to_i64() {
            ensure!(size % by == 0, "size {size} is not divisible by {by}");
            return Ok((size / by).to_dim());
        }
        Ok((self.clone() / by).reduce())
    }
}

/// Returns the sizes of an image.
fn image_sizes(lowering: &CoremlLowering<'_, '_>, x: Wire) -> TractResult<[TDim; 4]> {
    let shape = lowering.shape(x)?;
    let rank = shape.len();
    <[TDim; 4]>::try_from(shape)
        .map_err(|_| format_err!("invalid rank of an image: expected 4, got {rank}"))
}

/// Returns the side of a block.
fn block(lowering: &CoremlLowering<'_, '_>, operation: &Operation, name: &str) -> TractResult<i64> {
    let block = lowering.int(operation, name, 1)?;
    ensure!((1..=1 << 12).contains(&block), "invalid `{name}`: {block}");
    Ok(block)
}

fn block_sizes(
    lowering: &CoremlLowering<'_, '_>,
    operation: &Operation,
    name: &str,
) -> TractResult<[i64; 2]> {
    let found = lowering.ints(operation, name)?.unwrap_or_default();
    match found.as_slice() {
        [a, b] if (1..=1 << 12).contains(a) && (1..=1 << 12).contains(b) => Ok([*a, *b]),
        _ => bail!("invalid `{name}`: {found:?}"),
    }
}

/// Splits dimensions, permutes them and merges them.
fn split_and_permute(
    lowering: &mut CoremlLowering<'_, '_>,
    x: Wire,
    split: &[TDim],
    order: &[usize],
    to: &[TDim],
) -> TractResult<Wire> {
    let wire = lowering.reshaped(x, split)?;
    let wire = lowering.permuted(wire, order)?;
    lowering.reshaped(wire, to)
}

/// Reshapes to a shape composed of parts of other tensors' shapes.
fn reshape_like(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let references = lowering.all(operation, "ref_tensors")?;
    let numbers = |name: &str| -> TractResult<Vec<i64>> {
        let held = lowering.all(operation, name)?;
        let numbers = held.iter().map(|held| {
            let sizes = lowering.sizes_of(held)?;
            let first = sizes.and_then(|sizes| sizes.into_iter().next());
            Ok(first
                .with_context(|| format!("missing argument `{name}`"))?
                .to_i64()?)
        });
        numbers.collect()
    };
    let (begins, ends) = (numbers("begins")?, numbers("ends")?);
    let masks = lowering.all(operation, "end_masks")?;
    let masks: Vec<bool> = masks
        .iter()
        .map(|held| match held {
            CoremlOperand::Constant(TypedValue {
                content: ValueContent::Bools(bools),
                ..
            }) => Ok(bools.first() == Some(&true)),
            _ => bail!("`end_masks` are not constant booleans"),
        })
        .collect::<TractResult<_>>()?;
    let count = references.len();
    ensure!(
        [begins.len(), ends.len(), masks.len()] == [count; 3],
        "wrong number of bounds for {count} shapes: {} begins, {} ends",
        begins.len(),
        ends.len()
    );
    let mut to = Vec::new();
    for (at, held) in references.iter().enumerate() {
        let wire = lowering.wire(held)?;
        let shape = lowering.shape(wire)?;
        let size = i64::try_from(shape.len())?;
        let place = |place: i64| {
            let place = if place < 0 {
                place.saturating_add(size)
            } else {
                place
            };
            usize::try_from(place.clamp(0, size))
        };
        let begin = place(begins[at])?;
        let end = if masks[at] {
            shape.len()
        } else {
            place(ends[at])?
        };
        to.extend(shape.get(begin..end).unwrap_or_default().iter().cloned());
    }
    lowering.reshaped(x, &to).map(one)
}

/// Reverses the first positions along a dimension. Their number is listed for each position along
/// another dimension.
fn reverse_sequence(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let shape = lowering.shape(x)?;
    let [along, batch] =
        ["seq_axis", "batch_axis"].map(|name| lowering.axis(operation, name, shape.len()));
    let (along, batch) = (along?, batch?);
    let lengths = lowering.tensor(operation, "lengths")?;
    let lengths = lowering.frame.builder.cast(lengths, INDEX)?;
    let inputs = [x.outlet, lengths.outlet];
    let builder = &mut lowering.frame.builder;
    let wire = builder.kernel("ReverseSequence", x.dtype, &shape, &inputs, move |inputs| {
        let shape = inputs[0].shape();
        let own = strides(shape);
        let lengths = ints(&inputs[1])?;
        ensure!(
            lengths.len() == shape[batch],
            "wrong number of lengths: got {} for {} positions",
            lengths.len(),
            shape[batch]
        );
        let most = i64::try_from(shape[along])?;
        ensure!(
            lengths.iter().all(|length| (0..=most).contains(length)),
            "invalid lengths {lengths:?} for a dimension of size {most}"
        );
        let from = (0..inputs[0].len()).map(|place| {
            let at = place / own[along] % shape[along];
            let length = usize::try_from(lengths[place / own[batch] % shape[batch]])?;
            Ok(if at < length {
                place - at * own[along] + (length - 1 - at) * own[along]
            } else {
                place
            })
        });
        let from: Vec<usize> = from.collect::<TractResult<_>>()?;
        gather_elements(&inputs[0], shape, &from)
    })?;
    Ok(one(wire))
}
