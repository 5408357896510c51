//! `GatherND`, `ScatterND` and `OneHot`: indices count from the end where they are negative, and one that
//! is out of range is an error with its value, not a neighbour's element.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;
use tract_onnx::tract_hir::ops::array::GatherNd as Rules;

use super::super::graph::integer;

type Built = TractResult<(Box<dyn InferenceOp>, Vec<String>)>;

/// Reads a `GatherND`.
pub(super) fn gather(_: &ParsingContext, node: &NodeProto) -> Built {
    let batch_dims = usize::try_from(integer(node, "batch_dims", 0))?;
    let rules = Rules::new(batch_dims);
    Ok((expand(Gather { rules }), vec![]))
}

/// Reads a `ScatterND`, which is the library's but for its indices.
pub(super) fn scatter(context: &ParsingContext, node: &NodeProto) -> Built {
    let library = tract_onnx::onnx();
    let build = library
        .op_register
        .0
        .get("ScatterND")
        .context("the library has it")?;
    let (usual, _) = build(context, node)?;
    let usual = usual.as_op().downcast_ref::<Box<dyn Expansion>>().cloned();
    let usual = usual.context("the library's is an expansion")?;
    Ok((expand(Scatter { usual }), vec![]))
}

/// Reads a `OneHot`.
pub(super) fn one_hot(_: &ParsingContext, node: &NodeProto) -> Built {
    let axis = integer(node, "axis", -1);
    Ok((expand(OneHot { axis }), vec![]))
}

/// Places in a tensor, from tuples of indices into its dimensions after the first `batch_dims`: for
/// each tuple the number of the slice it names, within its batch.
fn places(data: &[usize], indices: &Tensor, batch_dims: usize) -> TractResult<Vec<usize>> {
    let depth = indices
        .shape()
        .last()
        .copied()
        .context("indices have a dimension")?;
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
            Ok(place * size + checked(*index, *size)?)
        })
    };
    (0..count).map(place).collect()
}

/// The index counted from the start.
fn checked(index: i64, size: usize) -> TractResult<usize> {
    let from_end = if index < 0 { i64::try_from(size)? } else { 0 };
    let found = usize::try_from(index.saturating_add(from_end)).ok();
    let found = found.filter(|index| *index < size);
    found.with_context(|| format!("the index {index} is outside of a dimension of {size}"))
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Gather {
    rules: Rules,
}

impl Expansion for Gather {
    fn name(&self) -> StaticName {
        "GatherND".into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        s: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> TractResult<()> {
        self.rules.rules(s, inputs, outputs)
    }

    fn wire(
        &self,
        prefix: &str,
        model: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        model.wire_node(prefix, self.clone(), inputs)
    }
}

impl Op for Gather {
    fn name(&self) -> StaticName {
        "GatherND".into()
    }

    op_as_typed_op!();
}

impl EvalOp for Gather {
    op_out_of_plan!();

    fn eval(&self, _: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let (data, indices) = args_2!(inputs);
        let batch_dims = self.rules.batch_dims;
        let batches: usize = data.shape()[..batch_dims].iter().product();
        ensure!(
            data.shape()[..batch_dims] == indices.shape()[..batch_dims.min(indices.rank())],
            "batches of {:?} and of {:?} are not the same",
            data.shape(),
            indices.shape()
        );
        let places = places(data.shape(), &indices, batch_dims)?;
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
        let starts = (0..places.len()).map(from);
        let output = dispatch_copy!(copy(data.datum_type())(&data, &shape, starts, slice))?;
        Ok(tvec!(output.into_tvalue()))
    }
}

impl TypedOp for Gather {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        let mut shape: TVec<TDim> = inputs[1].shape.to_tvec();
        let depth = shape
            .pop()
            .context("indices have a dimension")?
            .to_usize()?;
        let kept = inputs[0].shape.iter().skip(self.rules.batch_dims + depth);
        shape.extend(kept.cloned());
        Ok(tvec!(inputs[0].datum_type.fact(shape)))
    }

    as_op!();
}

#[derive(Debug, Clone)]
struct Scatter {
    usual: Box<dyn Expansion>,
}

impl Expansion for Scatter {
    fn name(&self) -> StaticName {
        "ScatterND".into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        s: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> TractResult<()> {
        self.usual.rules(s, inputs, outputs)
    }

    fn wire(
        &self,
        prefix: &str,
        model: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let name = format!("{prefix}.indices");
        let indices = model.wire_node(name, Normal, &[inputs[0], inputs[1]])?[0];
        let mut inputs: TVec<OutletId> = inputs.into();
        inputs[1] = indices;
        self.usual.wire(prefix, model, &inputs)
    }
}

/// Indices into a tensor, counted from the start of each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Normal;

impl Op for Normal {
    fn name(&self) -> StaticName {
        "Indices".into()
    }

    op_as_typed_op!();
}

impl EvalOp for Normal {
    op_out_of_plan!();

    fn eval(&self, _: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let (data, indices) = args_2!(inputs);
        let mut indices = indices.cast_to::<i64>()?.into_owned();
        let depth = indices
            .shape()
            .last()
            .copied()
            .context("indices have a dimension")?;
        ensure!(
            depth <= data.rank(),
            "indices of {depth} dimensions are too many for a tensor of shape {:?}",
            data.shape()
        );
        let mut view = indices.try_as_plain_ram_mut()?;
        for (at, index) in view.as_slice_mut::<i64>()?.iter_mut().enumerate() {
            *index = i64::try_from(checked(*index, data.shape()[at % depth])?)?;
        }
        Ok(tvec!(indices.into_tvalue()))
    }
}

impl TypedOp for Normal {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(tvec!(i64::datum_type().fact(inputs[1].shape.clone())))
    }

    as_op!();
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
            "there is no axis {} to put the depth at",
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
        other => bail!("the depth of a one-hot encoding is one number of 0 or more, not {other:?}"),
    }
}

/// A one-hot encoding along an axis. An index out of range is a row of the off value, as the standard
/// says.
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
                bail!("a one-hot encoding has two values");
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
            bytes.is_some_and(|bytes| bytes as u64 <= crate::runtime::tensor::MAX_BYTES),
            "a one-hot encoding of shape {shape:?} is too large"
        );
        let indices = indices.cast_to::<i64>()?;
        let indices = indices.try_as_plain_ram()?;
        let hot = indices.as_slice::<i64>()?.iter();
        let hot: Vec<Option<usize>> = hot.map(|index| checked(*index, depth).ok()).collect();
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
