//! `OneHot` with a depth that may be known only when the operator runs.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::integer;
use super::indices::{Built, checked_index};

/// Builds a `OneHot`.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let axis = integer(node, "axis", -1);
    Ok((expand(OneHot { axis }), vec![]))
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

impl Expansion for OneHot {
    fn name(&self) -> StaticName {
        "OneHot".into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        s: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> TractResult<()> {
        check_input_arity(inputs, 3)?;
        check_output_arity(outputs, 1)?;
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

    fn wire(
        &self,
        prefix: &str,
        model: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let mut shape = model.outlet_fact(inputs[0])?.shape.to_tvec();
        let axis = self.axis(shape.len())?;
        let depth = match &model.outlet_fact(inputs[1])?.konst {
            Some(depth) => depth_of(depth)?.to_dim(),
            None => model.symbols.new_with_prefix("depth").to_dim(),
        };
        shape.insert(axis, depth);
        let fact = model.outlet_fact(inputs[2])?.datum_type.fact(shape);
        model.wire_node(prefix, Encode { axis, fact }, inputs)
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

/// A one-hot encoding along an axis. An index out of range gives a row of the off value, as the
/// standard specifies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Encode {
    axis: usize,
    fact: TypedFact,
}

impl Op for Encode {
    fn name(&self) -> StaticName {
        "OneHot".into()
    }

    fn mints_runtime_symbols(&self) -> bool {
        true
    }

    op_as_typed_op!();
}

impl EvalOp for Encode {
    op_out_of_plan!();

    fn eval(&self, _: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
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
        let (indices, depth, values) = args_3!(inputs);
        let depth = depth_of(&depth)?;
        let mut shape: TVec<usize> = indices.shape().into();
        let inner: usize = shape[self.axis..].iter().product();
        shape.insert(self.axis, depth);
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
        let encoded = dispatch_copy!(encode(values.datum_type())(
            &values,
            &shape,
            inner.max(1),
            &hot
        ))?;
        Ok(tvec!(encoded.into_tvalue()))
    }
}

impl TypedOp for Encode {
    fn output_facts(&self, _: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(tvec!(self.fact.clone()))
    }

    as_op!();
}
