//! `TopK`. The library orders NaN inconsistently, at which its sort may panic. It returns zeros for
//! elements that do not exist, and requires a known number of elements.

use std::cmp::Ordering;

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_hir::internal::*;

use super::cut::dims;
use crate::tract::graph::integer;

type Built = TractResult<(Box<dyn InferenceOp>, Vec<String>)>;

/// Builds `TopK`.
#[expect(clippy::unnecessary_wraps, reason = "builders have this signature")]
pub(super) fn build(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let top = TopK {
        axis: integer(node, "axis", -1),
        is_largest: integer(node, "largest", 1) != 0,
    };
    Ok((expand(top), vec![]))
}

#[derive(Debug, Clone)]
struct TopK {
    axis: i64,
    is_largest: bool,
}

impl TopK {
    fn axis(&self, rank: usize) -> TractResult<usize> {
        let from_start = if self.axis < 0 {
            self.axis + i64::try_from(rank)?
        } else {
            self.axis
        };
        let axis = usize::try_from(from_start).ok().filter(|at| *at < rank);
        axis.with_context(|| format!("axis {} does not exist: the rank is {rank}", self.axis))
    }
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

impl Expansion for TopK {
    fn name(&self) -> StaticName {
        "TopK".into()
    }

    fn nboutputs(&self) -> TractResult<usize> {
        Ok(2)
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        solver: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> InferenceResult {
        check_input_arity(inputs, 2)?;
        check_output_arity(outputs, 2)?;
        solver.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        solver.equals(&outputs[1].datum_type, i64::datum_type())?;
        solver.equals(&inputs[0].rank, &outputs[0].rank)?;
        solver.equals(&outputs[0].shape, &outputs[1].shape)?;
        solver.given(&inputs[0].rank, move |solver, rank| {
            let rank = usize::try_from(rank)?;
            let axis = self.axis(rank)?;
            for at in (0..rank).filter(|at| *at != axis) {
                solver.equals(&inputs[0].shape[at], &outputs[0].shape[at])?;
            }
            solver.given(&inputs[1].value, move |solver, count| {
                solver.equals(&outputs[0].shape[axis], count_of(&count)?)
            })
        })
    }

    fn wire(
        &self,
        prefix: &str,
        model: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let mut values = model.outlet_fact(inputs[0])?.without_value();
        let axis = self.axis(values.rank())?;
        let count = match &model.outlet_fact(inputs[1])?.konst {
            Some(count) => count_of(count)?,
            None => model.symbols.new_with_prefix("top").to_dim(),
        };
        values.shape.set(axis, count);
        let places = i64::datum_type().fact(values.shape.to_tvec());
        let top = Top {
            axis,
            is_largest: self.is_largest,
            facts: [values, places],
        };
        model.wire_node(prefix, top, inputs)
    }
}

/// Returns the largest or smallest elements along an axis, best first, and their positions. Among
/// equal elements the first one precedes. NaN is larger than any number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Top {
    axis: usize,
    is_largest: bool,
    facts: [TypedFact; 2],
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
    ) -> TractResult<[Tensor; 2]> {
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
        Ok([values, places])
    }
}

impl Op for Top {
    fn name(&self) -> StaticName {
        "TopK".into()
    }

    fn mints_runtime_symbols(&self) -> bool {
        true
    }

    op_as_typed_op!();
}

impl EvalOp for Top {
    op_out_of_plan!();

    fn eval(&self, context: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let (from, count) = args_2!(inputs);
        let count = count_of(&count)?.eval(context.symbols).to_i64()?;
        let size = from.shape()[self.axis];
        let checked = usize::try_from(count).ok().filter(|count| *count <= size);
        let Some(count) = checked else {
            bail!("cannot select the {count} largest or smallest of {size} elements");
        };
        let chosen = dispatch_numbers!(Self::choose(from.datum_type())(self, &from, count))?;
        Ok(chosen.into_iter().map(IntoTValue::into_tvalue).collect())
    }
}

impl TypedOp for Top {
    fn output_facts(&self, _: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(self.facts.iter().cloned().collect())
    }

    as_op!();
}
