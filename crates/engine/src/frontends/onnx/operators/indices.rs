//! `GatherND` and `ScatterND`. Negative indices count from the end. An index out of range is an
//! error that names it, instead of another element.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;
use tract_onnx::tract_hir::ops::array::GatherNd as Rules;

use super::super::graph::integer;
use super::super::library::library_expansion;
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, counted_from_start, operator,
};
use crate::graph::guard::InvalidInput;
use crate::graph::kernel::Kernel;

/// Builds a `GatherND`.
pub(super) fn gather(_: &ParsingContext, node: &NodeProto) -> Built {
    let batch_dims = usize::try_from(integer(node, "batch_dims", 0))?;
    let rules = Rules::new(batch_dims);
    operator("GatherND", None, Gather { rules })
}

/// Builds a `ScatterND`: the library's operator, with corrected indices.
pub(super) fn scatter(context: &ParsingContext, node: &NodeProto) -> Built {
    let usual = library_expansion(context, node)?;
    operator("ScatterND", None, Scatter { usual })
}

/// Converts tuples of indices into the dimensions after the first `batch_dims`. Returns, for each
/// tuple, the number of its slice within its batch.
fn places(data: &[usize], indices: &Tensor, batch_dims: usize) -> TractResult<Vec<usize>> {
    let depth = indices
        .shape()
        .last()
        .copied()
        .context("indices need at least one dimension")?;
    let sizes = data.get(batch_dims..batch_dims + depth).with_context(|| {
        format!("indices of {depth} dimensions are too many for a tensor of shape {data:?}")
    })?;
    let values = indices.cast_to::<i64>()?;
    let values = values.try_as_plain_ram()?;
    let values = values.as_slice::<i64>()?;
    let count = values.len().checked_div(depth);
    let count = count.unwrap_or_else(|| indices.shape().iter().rev().skip(1).product());
    let place = |tuple: usize| {
        let tuple = &values[tuple * depth..(tuple + 1) * depth];
        tuple.iter().zip(sizes).try_fold(0, |place, (index, size)| {
            Ok(place * size + checked_index(*index, *size)?)
        })
    };
    (0..count).map(place).collect()
}

/// Returns the index, counted from the start, or an error if it is out of range.
pub(super) fn checked_index(index: i64, size: usize) -> TractResult<usize> {
    let found = counted_from_start(index, size)?;
    found.ok_or_else(|| {
        let reason = format!("the index {index} is outside a dimension of {size}");
        let operator = "indices".to_owned();
        InvalidInput { operator, reason }.into()
    })
}

/// Copies slices of a tensor, one after the other.
fn copy<T: Datum + Copy>(
    data: &Tensor,
    shape: &[usize],
    starts: impl Iterator<Item = usize>,
    slice: usize,
) -> TractResult<Tensor> {
    let data = data.try_as_plain_ram()?;
    let data = data.as_slice::<T>()?;
    let mut values: Vec<T> = Vec::with_capacity(shape.iter().product());
    for start in starts {
        values.extend_from_slice(&data[start..start + slice]);
    }
    Tensor::from_shape(shape, &values)
}

#[derive(Debug, Clone)]
struct Gather {
    rules: Rules,
}

impl NodeOperator for Gather {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        self.rules.rules(s, inputs, outputs)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let [data, indices] = [0, 1].map(|at| model.outlet_fact(inputs[at]));
        let fact = self.fact(data?, indices?)?;
        let batch_dims = self.rules.batch_dims;
        let kernel = Kernel::new("GatherND", tvec!(fact), move |inputs| {
            Ok(tvec!(gathered(&inputs[0], &inputs[1], batch_dims)?))
        });
        model.wire_node(prefix, kernel, inputs)
    }
}

impl Gather {
    fn fact(&self, data: &TypedFact, indices: &TypedFact) -> TractResult<TypedFact> {
        let mut shape: TVec<TDim> = indices.shape.to_tvec();
        let depth = shape
            .pop()
            .context("indices need at least one dimension")?
            .to_usize()?;
        let kept = data.shape.iter().skip(self.rules.batch_dims + depth);
        shape.extend(kept.cloned());
        Ok(data.datum_type.fact(shape))
    }
}

fn gathered(data: &Tensor, indices: &Tensor, batch_dims: usize) -> TractResult<Tensor> {
    let batches: usize = data.shape()[..batch_dims].iter().product();
    ensure!(
        data.shape()[..batch_dims] == indices.shape()[..batch_dims.min(indices.rank())],
        "batches of {:?} and of {:?} differ",
        data.shape(),
        indices.shape()
    );
    let places = places(data.shape(), indices, batch_dims)?;
    let depth = indices.shape()[indices.rank() - 1];
    let mut shape: TVec<usize> = indices.shape()[..indices.rank() - 1].into();
    shape.extend_from_slice(&data.shape()[batch_dims + depth..]);
    let named: usize = data.shape()[batch_dims..batch_dims + depth]
        .iter()
        .product();
    let slice: usize = data.shape()[batch_dims + depth..].iter().product();
    let each = places.len().checked_div(batches).unwrap_or(0);
    let from = |tuple: usize| {
        let batch = tuple.checked_div(each).unwrap_or(0);
        (batch * named + places[tuple]) * slice
    };
    copied(data, &shape, (0..places.len()).map(from), slice)
}

/// Copies slices of a tensor of any dtype, one after the other.
pub(super) fn copied(
    data: &Tensor,
    shape: &[usize],
    starts: impl Iterator<Item = usize>,
    slice: usize,
) -> TractResult<Tensor> {
    dispatch_copy!(copy(data.datum_type())(data, shape, starts, slice))
}

#[derive(Debug, Clone)]
struct Scatter {
    usual: Box<dyn Expansion>,
}

impl NodeOperator for Scatter {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        self.usual.rules(s, inputs, outputs)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let fact = i64::fact(model.outlet_fact(inputs[1])?.shape.clone());
        let kernel = Kernel::new("Indices", tvec!(fact), |inputs| {
            Ok(tvec!(non_negative(&inputs[0], &inputs[1])?))
        });
        let name = format!("{prefix}.indices");
        let indices = model.wire_node(name, kernel, &[inputs[0], inputs[1]])?[0];
        let mut inputs: TVec<OutletId> = inputs.into();
        inputs[1] = indices;
        self.usual.wire(prefix, model, &inputs)
    }
}

/// Converts indices into a tensor to non-negative ones.
fn non_negative(data: &Tensor, indices: &Tensor) -> TractResult<Tensor> {
    let mut indices = indices.cast_to::<i64>()?.into_owned();
    let depth = indices
        .shape()
        .last()
        .copied()
        .context("indices need at least one dimension")?;
    ensure!(
        depth <= data.rank(),
        "indices of {depth} dimensions are too many for a tensor of shape {:?}",
        data.shape()
    );
    let mut view = indices.try_as_plain_ram_mut()?;
    for (at, index) in view.as_slice_mut::<i64>()?.iter_mut().enumerate() {
        *index = i64::try_from(checked_index(*index, data.shape()[at % depth])?)?;
    }
    Ok(indices)
}
