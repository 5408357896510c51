//! Products of rows with packed weights, as operators in the library's graph.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_hir::infer::{Solver, TensorProxy};

use super::kernel::Kernel;
use super::pool::{computed_anew, computed_bytes};
use pkgtool_kernels::Split;

/// Creates an operator on tensors of this shape. `run` turns each row of the last dimension into a
/// row of `outputs` products. It receives the number of rows, the elements of the inputs, and the
/// memory for the products. The operator keeps `bytes` of weights.
pub(crate) fn product_of_rows<T: Datum + Copy>(
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
    Ok(kernel.with_weight_bytes(bytes))
}

/// Like [`product_of_rows`], for rows of bytes, signed or not, with an output of `dtype`.
pub(crate) fn product_of_byte_rows(
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
    Ok(kernel.with_weight_bytes(bytes))
}

/// Adds the shape rules of a product: rows of `inputs` elements become rows of `outputs` elements.
pub(crate) fn rules_of_rows<'r, 'p: 'r>(
    s: &mut Solver<'r>,
    [rows, products]: [&'p TensorProxy; 2],
    [inputs, outputs]: [usize; 2],
) -> TractResult<()> {
    s.equals(&products.rank, &rows.rank)?;
    s.given(&rows.rank, move |s, rank| {
        let rank = usize::try_from(rank)?;
        ensure!(
            rank > 0,
            "expected a tensor of at least rank 1, got a scalar"
        );
        for axis in 0..rank - 1 {
            s.equals(&products.shape[axis], &rows.shape[axis])?;
        }
        s.equals(&rows.shape[rank - 1], inputs.to_dim())?;
        s.equals(&products.shape[rank - 1], outputs.to_dim())
    })
}

/// Returns this shape with another last dimension.
pub(crate) fn with_last<D: Clone>(shape: &[D], last: D) -> TractResult<TVec<D>> {
    let mut shape: TVec<D> = shape.into();
    *shape
        .last_mut()
        .context("expected a tensor of at least rank 1, got a scalar")? = last;
    Ok(shape)
}

/// Transposes a matrix with this many columns.
pub(crate) fn turned<T: Copy>(rows: &[T], columns: usize) -> Vec<T> {
    let mut turned = Vec::with_capacity(rows.len());
    for column in 0..columns {
        turned.extend(rows.iter().skip(column).step_by(columns));
    }
    turned
}
