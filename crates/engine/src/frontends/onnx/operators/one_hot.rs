//! `OneHot` with a depth that may be known only when the operator runs.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::integer;
use super::indices::checked_index;
use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::kernel::Kernel;

/// Builds a `OneHot`.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let axis = integer(node, "axis", -1);
    operator("OneHot", 3, OneHot { axis })
}

#[derive(Debug, Clone)]
struct OneHot {
    axis: i64,
}

impl OneHot {
    fn axis(&self, rank: usize) -> TractResult<usize> {
        let rank = i64::try_from(rank)?;
        let axis = if self.axis < 0 {
            self.axis + rank + 1
        } else {
            self.axis
        };
        ensure!(
            (0..=rank).contains(&axis),
            "axis {} for the depth does not exist",
            self.axis
        );
        Ok(usize::try_from(axis)?)
    }
}

impl NodeOperator for OneHot {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[2].datum_type, &outputs[0].datum_type)?;
        s.equals(inputs[0].rank.bex() + 1, &outputs[0].rank)?;
        s.given(&inputs[0].rank, move |s, rank| {
            let rank = usize::try_from(rank)?;
            let axis = self.axis(rank)?;
            for at in 0..rank {
                let to = if at < axis { at } else { at + 1 };
                s.equals(&inputs[0].shape[at], &outputs[0].shape[to])?;
            }
            Ok(())
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let mut shape = model.outlet_fact(inputs[0])?.shape.to_tvec();
        let axis = self.axis(shape.len())?;
        let depth = match &model.outlet_fact(inputs[1])?.konst {
            Some(depth) => depth_of(depth)?.to_dim(),
            None => model.symbols.new_with_prefix("depth").to_dim(),
        };
        shape.insert(axis, depth);
        let fact = model.outlet_fact(inputs[2])?.datum_type.fact(shape);
        let kernel = Kernel::new("OneHot", tvec!(fact), move |inputs| {
            Ok(tvec!(encoded(axis, &inputs[0], &inputs[1], &inputs[2])?))
        });
        model.wire_node(prefix, kernel.binding(), inputs)
    }
}

fn depth_of(depth: &Tensor) -> TractResult<usize> {
    let values = depth.cast_to::<i64>()?;
    let values = values.try_as_plain_ram()?;
    match values.as_slice::<i64>()? {
        [depth] if *depth >= 0 => Ok(usize::try_from(*depth)?),
        other => {
            bail!("the depth of a one-hot encoding must be one number of at least 0, got {other:?}")
        }
    }
}

/// Returns a one-hot encoding along an axis. An index out of range gives a row of the off value, as
/// the standard specifies.
fn encoded(axis: usize, indices: &Tensor, depth: &Tensor, values: &Tensor) -> TractResult<Tensor> {
    fn encode<T: Datum + Copy>(
        values: &Tensor,
        shape: &[usize],
        inner: usize,
        hot: &[Option<usize>],
    ) -> TractResult<Tensor> {
        let values = values.try_as_plain_ram()?;
        let [off, on] = values.as_slice::<T>()? else {
            bail!("a one-hot encoding needs two values");
        };
        let mut encoded = vec![*off; shape.iter().product()];
        let depth = encoded.len().checked_div(hot.len()).unwrap_or(0);
        for (at, hot) in hot.iter().enumerate() {
            if let Some(hot) = hot {
                let (before, after) = (at / inner, at % inner);
                encoded[(before * depth + hot) * inner + after] = *on;
            }
        }
        Tensor::from_shape(shape, &encoded)
    }
    let depth = depth_of(depth)?;
    let mut shape: TVec<usize> = indices.shape().into();
    let inner: usize = shape[axis..].iter().product();
    shape.insert(axis, depth);
    let bytes = shape
        .iter()
        .try_fold(values.datum_type().size_of(), |product, size| {
            product.checked_mul(*size)
        });
    ensure!(
        bytes.is_some_and(|bytes| bytes as u64 <= crate::tensor::MAX_TENSOR_BYTES),
        "a one-hot encoding of shape {shape:?} is too large"
    );
    let indices = indices.cast_to::<i64>()?;
    let indices = indices.try_as_plain_ram()?;
    let hot = indices.as_slice::<i64>()?.iter();
    let hot: Vec<Option<usize>> = hot.map(|index| checked_index(*index, depth).ok()).collect();
    dispatch_copy!(encode(values.datum_type())(
        values,
        &shape,
        inner.max(1),
        &hot
    ))
}
