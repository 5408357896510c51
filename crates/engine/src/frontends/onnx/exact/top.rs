//! `TopK`. The library orders NaN inconsistently, at which its sort may panic. It returns zeros for
//! elements that do not exist, and requires a known number of elements.

use std::cmp::Ordering;

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_hir::internal::*;

use super::cut::dims;
use crate::frontends::onnx::graph::integer;
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, axis_of, operator,
};
use crate::graph::kernel::Kernel;

/// Builds `TopK`.
pub(crate) fn build(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let top = TopK {
        axis: integer(node, "axis", -1),
        is_largest: integer(node, "largest", 1) != 0,
    };
    operator("TopK", 2, top)
}

#[derive(Debug, Clone)]
struct TopK {
    axis: i64,
    is_largest: bool,
}

/// Returns the requested number of elements: one number, which may be a symbolic size.
fn count_of(count: &Tensor) -> TractResult<TDim> {
    ensure!(
        count.len() == 1,
        "`K` must be one number, got a tensor of shape {:?}",
        count.shape()
    );
    let count = dims(count)?.into_iter().next();
    count.context("`K` is missing")
}

impl NodeOperator for TopK {
    fn outputs(&self) -> usize {
        2
    }

    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        s.equals(&outputs[1].datum_type, i64::datum_type())?;
        s.equals(&inputs[0].rank, &outputs[0].rank)?;
        s.equals(&outputs[0].shape, &outputs[1].shape)?;
        s.given(&inputs[0].rank, move |s, rank| {
            let rank = usize::try_from(rank)?;
            let axis = axis_of(self.axis, rank)?;
            for at in (0..rank).filter(|at| *at != axis) {
                s.equals(&inputs[0].shape[at], &outputs[0].shape[at])?;
            }
            s.given(&inputs[1].value, move |s, count| {
                s.equals(&outputs[0].shape[axis], count_of(&count)?)
            })
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let mut values = model.outlet_fact(inputs[0])?.without_value();
        let axis = axis_of(self.axis, values.rank())?;
        let count = match &model.outlet_fact(inputs[1])?.konst {
            Some(count) => count_of(count)?,
            None => model.symbols.new_with_prefix("top").to_dim(),
        };
        values.shape.set(axis, count);
        let places = i64::datum_type().fact(values.shape.to_tvec());
        let top = Top {
            axis,
            is_largest: self.is_largest,
        };
        let facts = tvec!(values, places);
        let kernel = Kernel::with_context("TopK", facts, move |context, inputs| {
            top.compute(context, inputs)
        });
        model.wire_node(prefix, kernel.binding(), inputs)
    }
}

/// Returns the largest or smallest elements along an axis, best first, and their positions. Among
/// equal elements the first one precedes. NaN is larger than any number.
struct Top {
    axis: usize,
    is_largest: bool,
}

impl Top {
    fn order<T: PartialOrd>(&self, left: &T, right: &T) -> Ordering {
        let is_nan = |value: &T| value.partial_cmp(value).is_none();
        let order = left
            .partial_cmp(right)
            .unwrap_or_else(|| is_nan(left).cmp(&is_nan(right)));
        if self.is_largest {
            order.reverse()
        } else {
            order
        }
    }

    fn choose<T: Datum + Copy + PartialOrd>(
        &self,
        from: &Tensor,
        count: usize,
    ) -> TractResult<TVec<Tensor>> {
        let plain = from.try_as_plain_ram()?;
        let elements = plain.as_slice::<T>()?;
        let mut shape: TVec<usize> = from.shape().into();
        let size = shape[self.axis];
        let inner: usize = shape[self.axis + 1..].iter().product();
        let outer: usize = shape[..self.axis].iter().product();
        shape[self.axis] = count;
        let mut values = Tensor::zero_dt(from.datum_type(), &shape)?;
        let mut places = Tensor::zero::<i64>(&shape)?;
        {
            let mut values = values.try_as_plain_ram_mut()?;
            let mut places = places.try_as_plain_ram_mut()?;
            let (values, places) = (values.as_slice_mut::<T>()?, places.as_slice_mut::<i64>()?);
            for row in 0..outer * inner {
                let (before, after) = (row / inner, row % inner);
                let at = |place: usize| (before * size + place) * inner + after;
                let mut order: Vec<usize> = (0..size).collect();
                order
                    .sort_by(|left, right| self.order(&elements[at(*left)], &elements[at(*right)]));
                for (rank, place) in order.into_iter().take(count).enumerate() {
                    let to = (before * count + rank) * inner + after;
                    values[to] = elements[at(place)];
                    places[to] = i64::try_from(place)?;
                }
            }
        }
        Ok(tvec!(values, places))
    }

    fn compute(&self, context: &EvalContext, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (from, count) = (&inputs[0], &inputs[1]);
        let count = count_of(count)?.eval(context.symbols).to_i64()?;
        let size = from.shape()[self.axis];
        let checked = usize::try_from(count).ok().filter(|count| *count <= size);
        let Some(count) = checked else {
            bail!("cannot select the {count} largest or smallest of {size} elements");
        };
        dispatch_numbers!(Self::choose(from.datum_type())(self, from, count))
    }
}
