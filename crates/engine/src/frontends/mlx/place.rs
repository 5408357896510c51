//! MLX instructions that read and write elements by index.

use tract_onnx::tract_core::internal::*;

use super::integer::argument;
use super::{InstructionField, InstructionTable, MlxInstruction, MlxLowering, Number};
use crate::graph::builder::{Wire, axes_of, axis_of};
use crate::graph::calling::CallArg;
use crate::tensor::DType;

/// The instructions of this file.
pub(super) const TABLE: InstructionTable = &[
    (&["Take"], take),
    (&["TakeAlongAxis"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let indices = lowering.tensor(node, "indices")?;
        let axis = lowering.int(node, "axis")?;
        let args = vec![x.into(), axis.into(), indices.into(), false.into()];
        lowering.call(node, "aten::gather.out", args, x.dtype)
    }),
    (&["IndexCopy"], copy),
    (&["ScatterAdd"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let indices = lowering.tensor(node, "indices")?;
        let updates = lowering.tensor(node, "updates")?;
        let axis = lowering.int(node, "axis")?;
        let args = vec![x.into(), axis.into(), indices.into(), updates.into()];
        lowering.call(node, "aten::scatter_add.out", args, x.dtype)
    }),
    (&["Gather"], gather),
];

/// Lowers selection of one position of a dimension, or of the positions in a tensor.
fn take(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let rank = lowering.shape(x)?.len();
    let axis = axis_of(lowering.int(node, "axis")?, rank)?;
    let Some(InstructionField::Number(index)) = node.fields.get("index") else {
        bail!("missing field `index`");
    };
    let wire = if let Number::Tensor(slot) = index {
        let indices = lowering.slot(*slot)?;
        let indices = lowering.frame.builder.cast(indices, DType::Int64)?;
        lowering.caller().rows(x, indices, axis)?
    } else {
        let index = argument(lowering.number(*index)?)?;
        let args = vec![x.into(), i64::try_from(axis)?.into(), index];
        lowering.aten("aten::select_copy.int_out", args, x.dtype)?
    };
    lowering.write_output(node, wire)
}

/// Lowers writing rows to the given positions of a dimension.
fn copy(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let into = lowering.tensor(node, "dst")?;
    let part = lowering.tensor(node, "update")?;
    let indices = lowering.tensor(node, "indices")?;
    let shape = lowering.shape(into)?;
    let axis = axis_of(lowering.int(node, "axis")?, shape.len())?;
    let builder = &mut lowering.frame.builder;
    let part = builder.cast(part, into.dtype)?.outlet;
    let indices = builder.cast(indices, DType::Int64)?.outlet;
    let inputs = [into.outlet, part, indices];
    let wire = builder.kernel("IndexCopy", into.dtype, &shape, &inputs, move |inputs| {
        let indices = inputs[2].try_as_plain_ram()?;
        copy_rows(&inputs[0], &inputs[1], indices.as_slice::<i64>()?, axis)
    })?;
    lowering.write_output(node, Wire { ..wire })
}

/// Copies rows of `part` along a dimension to their positions.
fn copy_rows(into: &Tensor, part: &Tensor, places: &[i64], axis: usize) -> TractResult<Tensor> {
    let shape = into.shape().to_vec();
    let mut wanted = shape.clone();
    wanted[axis] = places.len();
    ensure!(
        part.shape() == wanted,
        "invalid shape of an update: got {:?}, expected {wanted:?}",
        part.shape()
    );
    let inner: usize = shape[axis + 1..].iter().product::<usize>() * into.datum_type().size_of();
    let outer: usize = shape[..axis].iter().product();
    let count = i64::try_from(shape[axis])?;
    let mut placed = Tensor::clone(into);
    let (to, from) = (placed.as_bytes_mut(), part.as_bytes());
    for block in 0..outer {
        for (at, place) in places.iter().enumerate() {
            let place = if *place < 0 { place + count } else { *place };
            ensure!(
                (0..count).contains(&place),
                "position {place} is out of range for a dimension of size {count}"
            );
            let place = usize::try_from(place)?;
            let to = &mut to[(block * shape[axis] + place) * inner..][..inner];
            to.copy_from_slice(&from[(block * places.len() + at) * inner..][..inner]);
        }
    }
    Ok(placed)
}

/// Lowers gathering by several index tensors; dimensions without an index are taken whole.
fn gather(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let indices = lowering.tensors(node, "indices")?;
    let shape = lowering.shape(x)?;
    let axes = lowering.ints(node, "axes")?;
    let axes = axes_of(&axes, shape.len())?;
    let sizes = lowering.ints(node, "slice_sizes")?;
    ensure!(
        !axes.is_empty() && indices.len() == axes.len() && sizes.len() == shape.len(),
        "invalid gather: {} indices for {} dimensions",
        indices.len(),
        axes.len()
    );
    for (axis, (size, dim)) in sizes.iter().zip(&shape).enumerate() {
        let whole = if axes.contains(&axis) {
            *size == 1
        } else {
            *dim == size.to_dim()
        };
        ensure!(
            whole,
            "unsupported slice of size {size} in dimension {axis} of size {dim}"
        );
    }
    let others = (0..shape.len()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = axes.iter().copied().chain(others).collect();
    let builder = &mut lowering.frame.builder;
    let outlets: Vec<OutletId> = indices.iter().map(|wire| wire.outlet).collect();
    let mut to = builder.broadcast_shape(&outlets)?;
    to.extend(sizes.iter().map(ToDim::to_dim));
    let rows = Wire {
        outlet: builder.transpose(x.outlet, &order)?,
        ..x
    };
    let args = vec![rows.into(), CallArg::Tensors(indices)];
    let mut wire = lowering.aten("aten::index.Tensor_out", args, x.dtype)?;
    wire.outlet = lowering.frame.builder.reshape(wire.outlet, &to)?;
    lowering.write_output(node, wire)
}
