//! Core ML operations that create tensors from numbers, or from positions in other tensors.

use tract_onnx::tract_core::internal::*;

use super::held::CoremlOperand;
use super::real::check_size;
use super::shape::INDEX;
use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::builder::{Wire, axis_of};
use crate::graph::calling::CallArg;
use crate::tensor::DType;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    // Sets everything outside of a band around the diagonal to zero.
    (&["band_part"], |lowering, operation| {
        let mut x = lowering.tensor(operation, "x")?;
        let lower = lowering.int(operation, "lower", -1)?;
        let upper = lowering.int(operation, "upper", -1)?;
        if lower >= 0 {
            let args = vec![x.into(), (-lower).into()];
            x = lowering.aten("aten::triu.out", args, x.dtype)?;
        }
        if upper >= 0 {
            let args = vec![x.into(), upper.into()];
            x = lowering.aten("aten::tril.out", args, x.dtype)?;
        }
        Ok(one(x))
    }),
    (&["fill"], |lowering, operation| {
        let shape = lowering
            .sizes(operation, "shape")?
            .context("missing argument `shape`")?;
        filled(lowering, operation, &shape)
    }),
    (&["fill_like"], |lowering, operation| {
        let x = lowering.tensor(operation, "ref_tensor")?;
        let shape = lowering.shape(x)?;
        filled(lowering, operation, &shape)
    }),
    (&["non_zero"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        lowering.aten_result("aten::nonzero.out", vec![x.into()], DType::Int64)
    }),
    (&["one_hot"], one_hot),
    (&["range_1d"], range),
    (&["shape"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let sizes = lowering.shape(x)?;
        Ok(vec![CoremlOperand::Sizes {
            sizes,
            is_number: false,
        }])
    }),
];

fn filled(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation, shape: &[TDim]) -> Results {
    check_size(shape)?;
    let value = number(lowering, operation, "value", 0.0)?;
    let outlet = lowering.frame.builder.expand(value.outlet, shape)?;
    Ok(one(Wire { outlet, ..value }))
}

/// Returns a number as a tensor of the result's dtype.
fn number(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    name: &str,
    default: f64,
) -> TractResult<Wire> {
    let dtype = lowering.dtype(operation)?;
    match lowering.optional_tensor(operation, name)? {
        Some(wire) => lowering.frame.builder.cast(wire, dtype),
        None => lowering.frame.builder.scalar(default, dtype, 0),
    }
}

/// Lowers one-hot encoding: one value where the position in a new dimension equals the index,
/// another value elsewhere.
fn one_hot(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let indices = lowering.tensor(operation, "indices")?;
    let mut indices = lowering.frame.builder.cast(indices, INDEX)?;
    let mut shape = lowering.shape(indices)?;
    let rank = shape.len() + 1;
    let axis = axis_of(lowering.int(operation, "axis", -1)?, rank)?;
    let count = lowering.sizes(operation, "one_hot_vector_size")?;
    let count = count.and_then(|count| count.into_iter().next());
    let count = count.context("missing argument `one_hot_vector_size`")?;
    shape.insert(axis, count.clone());
    check_size(&shape)?;
    let args = vec![CallArg::from(0), CallArg::Int(count), CallArg::from(1)];
    let places = lowering.aten("aten::arange.start_out", args, INDEX)?;
    let places = lowering.along(places, axis, rank)?;
    let builder = &mut lowering.frame.builder;
    indices.outlet = builder.wire(AxisOp::Add(axis), &[indices.outlet])?;
    let args = vec![indices.into(), places.into()];
    let hit = lowering.aten("aten::eq.Tensor_out", args, DType::Bool)?;
    let on = number(lowering, operation, "on_value", 1.0)?;
    let off = number(lowering, operation, "off_value", 0.0)?;
    lowering.select(hit, on, off).map(one)
}

/// Lowers a range of integers, which may be known only at run time, or of constant floats.
fn range(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let dtype = lowering.dtype(operation)?;
    let parts = ["start", "end", "step"].map(|name| -> TractResult<CallArg> {
        if dtype.is_float() {
            return Ok(lowering.float(operation, name, 1.0)?.into());
        }
        let sizes = lowering.sizes(operation, name)?;
        let first = sizes.and_then(|sizes| sizes.into_iter().next());
        Ok(CallArg::Int(
            first.with_context(|| format!("missing argument `{name}`"))?,
        ))
    });
    let [start, end, step] = parts;
    let args = vec![start?, end?, step?];
    lowering.aten_result("aten::arange.start_out", args, dtype)
}
