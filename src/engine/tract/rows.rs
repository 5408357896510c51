//! Products of rows with packed weights, as operators in the library's graph.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_hir::infer::{Solver, TensorProxy};

use super::kernel::Kernel;
use super::pool::{computed_anew, computed_bytes};
use crate::kernels::Split;

/// An operator on tensors of this shape, of whose last dimension's rows `run` makes rows of `outputs`: from
/// their number, the elements of the inputs, and where the products go. It keeps `bytes` of weights.
pub(super) fn product_of_rows<T: Datum + Copy>(
    name: &'static str,
    shape: &[TDim],
    outputs: usize,
    bytes: usize,
    run: impl Fn(usize, &[&[T]], &mut [T], Split) -> Result<(), String> + Send + Sync + 'static,
) -> TractResult<Kernel> {
    let facts = tvec!(T::fact(with_last(shape, outputs.to_dim())?));
    let kernel = Kernel::new(name, facts, move |inputs| {
        let shape = with_last(inputs[0].shape(), outputs)?;
        let rows = shape.iter().rev().skip(1).product();
        let work = |from: &[&[T]], to: &mut [T], split| run(rows, from, to, split);
        Ok(tvec!(computed_anew(&shape, inputs, work)?))
    });
    Ok(kernel.holding(bytes))
}

/// The same on rows of bytes, signed or not, which become bytes of `dtype`.
pub(super) fn product_of_byte_rows(
    name: &'static str,
    shape: &[TDim],
    (outputs, dtype): (usize, DatumType),
    bytes: usize,
    run: impl Fn(&[u8], &mut [u8], Split) -> Result<(), String> + Send + Sync + 'static,
) -> TractResult<Kernel> {
    let facts = tvec!(dtype.fact(with_last(shape, outputs.to_dim())?));
    let kernel = Kernel::new(name, facts, move |inputs| {
        let shape = with_last(inputs[0].shape(), outputs)?;
        let work = |from: &[&[u8]], to: &mut [u8], split| run(from[0], to, split);
        Ok(tvec!(computed_bytes(dtype, &shape, inputs, work)?))
    });
    Ok(kernel.holding(bytes))
}

/// Rows of `inputs` become rows of `outputs`: what a reader says of a product's shapes.
pub(super) fn rules_of_rows<'r, 'p: 'r>(
    s: &mut Solver<'r>,
    [rows, products]: [&'p TensorProxy; 2],
    [inputs, outputs]: [usize; 2],
) -> TractResult<()> {
    s.equals(&products.rank, &rows.rank)?;
    s.given(&rows.rank, move |s, rank| {
        let rank = usize::try_from(rank)?;
        ensure!(rank > 0, "a product of one number");
        for axis in 0..rank - 1 {
            s.equals(&products.shape[axis], &rows.shape[axis])?;
        }
        s.equals(&rows.shape[rank - 1], inputs.to_dim())?;
        s.equals(&products.shape[rank - 1], outputs.to_dim())
    })
}

/// This shape with another last dimension.
pub(super) fn with_last<D: Clone>(shape: &[D], last: D) -> TractResult<TVec<D>> {
    let mut shape: TVec<D> = shape.into();
    *shape.last_mut().context("a product of one number")? = last;
    Ok(shape)
}

/// Columns of a matrix of so many of them as rows.
pub(super) fn turned<T: Copy>(rows: &[T], columns: usize) -> Vec<T> {
    let mut turned = Vec::with_capacity(rows.len());
    for column in 0..columns {
        turned.extend(rows.iter().skip(column).step_by(columns));
    }
    turned
}
