//! Maximum and minimum. The library starts from the largest finite number, which is wrong for
//! infinities and for empty tensors, and its comparisons drop NaN.

use half::f16;
use tract_linalg::multithread::par_chunks_mut;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::{
    BinMiniOp, OptBinByScalar, OptBinChain, OptBinChainStep, OptBinUnicast, TypedBinOp,
};
use tract_onnx::tract_core::ops::cnn::{Conv, Deconv};
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::nn::{Reduce, Reducer};

use super::mended::{Correction, mended};

/// Returns the replacement of this operator of a plan, if it needs one.
pub(crate) fn settled(operator: &dyn TypedOp) -> Option<Box<dyn TypedOp>> {
    let op = operator.as_op();
    let mend: Correction = if let Some(reduce) = op.downcast_ref::<Reduce>() {
        match reduce.reducer {
            Reducer::Max | Reducer::Min => of_axes,
            Reducer::Sum => of_nothing,
            _ => return None,
        }
    } else if let Some(chain) = op.downcast_ref::<OptBinChain>() {
        let has_one = chain
            .steps
            .iter()
            .any(|step| is_extreme(step.binop.as_ref()).is_some());
        if !has_one {
            return None;
        }
        of_chain
    } else if is_extreme(binary_operation(operator)?)? {
        |inner, context, inputs| of_two(inner, context, inputs, true)
    } else {
        |inner, context, inputs| of_two(inner, context, inputs, false)
    };
    Some(mended(operator, mend))
}

/// Keeps maximum and minimum out of products: fused into one, they drop a NaN of the other operand.
pub(crate) fn prepare(model: &mut TypedModel) -> TractResult<()> {
    let mut replaced = Vec::new();
    for node in model.nodes() {
        let op = node.op_as::<TypedBinOp>();
        if op.is_none_or(|op| is_extreme(op.0.as_ref()).is_none()) {
            continue;
        }
        let stored = node.inputs.iter();
        let stored = stored.map(|input| Ok(model.outlet_fact(*input)?.konst.clone()));
        let stored = stored.collect::<TractResult<Vec<_>>>()?;
        let has_nan = stored.iter().flatten().any(|value| has_nan(value));
        let is_open = stored.iter().all(Option::is_none);
        let follows = || {
            node.inputs
                .iter()
                .any(|input| follows_product(model, *input, 0))
        };
        if has_nan || is_open && follows() {
            replaced.extend(settled(node.op.as_ref()).map(|op| (node.id, op)));
        }
    }
    for (node, op) in replaced {
        model.nodes[node].op = op;
    }
    Ok(())
}

/// Maximum number of nodes between a maximum or minimum and a product that it may be fused into.
const MAX_STEPS: usize = 8;

fn follows_product(model: &TypedModel, from: OutletId, steps: usize) -> bool {
    let node = model.node(from.node);
    let is_product = node.op_is::<EinSum>() || node.op_is::<Conv>() || node.op_is::<Deconv>();
    let goes_on =
        node.op_is::<TypedBinOp>() || node.op_is::<ElementWiseOp>() || node.op_is::<AxisOp>();
    is_product
        || goes_on
            && steps < MAX_STEPS
            && node
                .inputs
                .iter()
                .any(|input| follows_product(model, *input, steps + 1))
}

/// Returns the elementwise operation of an operator on two tensors.
fn binary_operation(operator: &dyn TypedOp) -> Option<&dyn BinMiniOp> {
    let op = operator.as_op();
    let any = op.downcast_ref::<TypedBinOp>().map(|op| op.0.as_ref());
    let scalar = || {
        op.downcast_ref::<OptBinByScalar>()
            .map(|op| op.binop.as_ref())
    };
    let unicast = || {
        op.downcast_ref::<OptBinUnicast>()
            .map(|op| op.binop.as_ref())
    };
    any.or_else(scalar).or_else(unicast)
}

/// Returns `true` for a maximum, `false` for a minimum.
fn is_extreme(op: &dyn BinMiniOp) -> Option<bool> {
    match op.name() {
        "Max" => Some(true),
        "Min" => Some(false),
        _ => None,
    }
}

fn of_two(
    inner: &dyn TypedOp,
    context: &EvalContext,
    inputs: TVec<TValue>,
    larger: bool,
) -> TractResult<TVec<TValue>> {
    let scalar = inputs.iter().position(|input| input.len() == 1);
    if let Some(scalar) = scalar
        && inputs[1 - scalar].rank() == inputs[scalar].rank()
        && let Some(bound) = single(&inputs[scalar])
        && single_precision(&inputs[1 - scalar])
    {
        let mut inputs = inputs;
        return bounded(inputs.remove(1 - scalar), &[(larger, bound)]);
    }
    if !inputs.iter().any(|input| has_nan(input)) {
        return inner.eval(context, inputs);
    }
    let [left, right] = &*inputs else {
        bail!("a maximum or minimum needs two operands");
    };
    let result = in_double(left, right, |left, right| extreme(left, right, larger))?;
    Ok(tvec!(result.into_tvalue()))
}

/// Applies a function to each pair of elements, broadcast and in float64. The result has the dtype
/// of `left`.
pub(crate) fn in_double(
    left: &Tensor,
    right: &Tensor,
    function: impl Fn(f64, f64) -> f64,
) -> TractResult<Tensor> {
    let dtype = left.datum_type();
    let shape = tract_onnx::tract_core::broadcast::multi_broadcast(&[left.shape(), right.shape()])?;
    let mut result = left
        .broadcast_to_shape(&shape)?
        .cast_to_dt(DatumType::F64)?
        .into_owned();
    let right = right.broadcast_to_shape(&shape)?;
    let right = right.cast_to::<f64>()?;
    {
        let right = right.try_as_plain_ram()?;
        let mut view = result.try_as_plain_ram_mut()?;
        let pairs = view
            .as_slice_mut::<f64>()?
            .iter_mut()
            .zip(right.as_slice::<f64>()?);
        pairs.for_each(|(left, right)| *left = function(*left, *right));
    }
    Ok(result.cast_to_dt(dtype)?.into_owned())
}

/// Returns the number of a float32 tensor with one element.
fn single(tensor: &Tensor) -> Option<f32> {
    let is_one = tensor.len() == 1 && tensor.datum_type() == DatumType::F32;
    let value = is_one.then(|| tensor.cast_to_scalar::<f32>().ok())??;
    (!value.is_nan()).then_some(value)
}

fn single_precision(tensor: &Tensor) -> bool {
    tensor.datum_type() == DatumType::F32 && tensor.is_plain_ram()
}

/// Clamps each element by several numbers in one pass; `true` takes the larger one. Comparisons
/// with NaN are false, so NaN stays.
fn bounded(of: TValue, bounds: &[(bool, f32)]) -> TractResult<TVec<TValue>> {
    let mut tensor = of.into_tensor();
    let mut plain = tensor.try_as_plain_ram_mut()?;
    let values = plain.as_slice_mut::<f32>()?;
    let count = values.len();
    par_chunks_mut(values, 1, count, |_, part| {
        for chunk in part.chunks_mut(CHUNK) {
            for &(larger, bound) in bounds {
                if larger {
                    for value in &mut *chunk {
                        *value = if *value < bound { bound } else { *value };
                    }
                } else {
                    for value in &mut *chunk {
                        *value = if *value > bound { bound } else { *value };
                    }
                }
            }
        }
        Ok(())
    })?;
    Ok(tvec!(tensor.into_tvalue()))
}

/// Runs a chain's arithmetic and its maxima and minima in turns. A NaN that arithmetic computes, or
/// that an operand contains, stays in the following results.
fn of_chain(
    inner: &dyn TypedOp,
    context: &EvalContext,
    mut inputs: TVec<TValue>,
) -> TractResult<TVec<TValue>> {
    let chain = inner.as_op().downcast_ref::<OptBinChain>();
    let chain = chain.context("expected a chain of operators")?;
    let mut value = inputs.remove(0);
    let mut operands = inputs.into_iter();
    let alike = |one: &OptBinChainStep, next: &OptBinChainStep| {
        let is_extreme = |step: &OptBinChainStep| is_extreme(step.binop.as_ref()).is_some();
        is_extreme(one) == is_extreme(next)
    };
    for steps in chain.steps.chunk_by(alike) {
        let operands: TVec<TValue> = operands.by_ref().take(steps.len()).collect();
        ensure!(
            operands.len() == steps.len(),
            "every step of a chain needs an operand"
        );
        value = if is_extreme(steps[0].binop.as_ref()).is_some() {
            of_extremes(steps, context, value, &operands)?
        } else {
            let steps = steps.into();
            let inputs = std::iter::once(value).chain(operands).collect();
            OptBinChain { steps }.eval(context, inputs)?.remove(0)
        };
    }
    Ok(tvec!(value))
}

/// Applies the maxima and minima of a chain to a tensor, operand by operand.
fn of_extremes(
    steps: &[OptBinChainStep],
    context: &EvalContext,
    value: TValue,
    operands: &[TValue],
) -> TractResult<TValue> {
    let pairs = steps.iter().zip(operands);
    let bounds = pairs
        .clone()
        .map(|(step, operand)| Some((is_extreme(step.binop.as_ref())?, single(operand)?)));
    let bounds: Option<TVec<(bool, f32)>> = bounds.collect();
    if let Some(bounds) = bounds.filter(|_| single_precision(&value)) {
        return Ok(bounded(value, &bounds)?.remove(0));
    }
    pairs.into_iter().try_fold(value, |value, (step, operand)| {
        let larger = is_extreme(step.binop.as_ref()).context("expected a maximum or minimum")?;
        let step = TypedBinOp(step.binop.clone(), None);
        let inputs = tvec!(value, operand.clone());
        Ok(of_two(&step, context, inputs, larger)?.remove(0))
    })
}

/// Returns zeros for the sum of an empty tensor. The library divides by the number of elements.
fn of_nothing(
    inner: &dyn TypedOp,
    context: &EvalContext,
    inputs: TVec<TValue>,
) -> TractResult<TVec<TValue>> {
    if inputs[0].len() > 0 {
        return inner.eval(context, inputs);
    }
    let reduce = inner.as_op().downcast_ref::<Reduce>();
    let reduce = reduce.context("expected a reduction")?;
    let mut shape: TVec<usize> = inputs[0].shape().into();
    for axis in &reduce.axes {
        shape[*axis] = 1;
    }
    let zeros = Tensor::zero_dt(inputs[0].datum_type(), &shape)?;
    Ok(tvec!(zeros.into_tvalue()))
}

fn of_axes(
    inner: &dyn TypedOp,
    context: &EvalContext,
    inputs: TVec<TValue>,
) -> TractResult<TVec<TValue>> {
    let input = inputs[0].clone();
    let is_special = input.datum_type().is_float() && (input.len() == 0 || !all_finite(&input));
    if !is_special {
        return inner.eval(context, inputs);
    }
    let reduce = inner.as_op().downcast_ref::<Reduce>();
    let reduce = reduce.context("expected a reduction")?;
    let larger = matches!(reduce.reducer, Reducer::Max);
    let start = if larger {
        f64::NEG_INFINITY
    } else {
        f64::INFINITY
    };
    let shape = input.shape().iter().enumerate();
    let shape: TVec<usize> = shape
        .map(|(axis, size)| {
            if reduce.axes.contains(&axis) {
                1
            } else {
                *size
            }
        })
        .collect();
    let values = input.cast_to::<f64>()?;
    let view = values.to_plain_array_view::<f64>()?;
    let mut result = tract_ndarray::ArrayD::from_elem(&*shape, start);
    for (mut at, value) in view.indexed_iter().map(|(at, value)| (at, *value)) {
        for axis in &reduce.axes {
            at[*axis] = 0;
        }
        result[&at] = extreme(result[&at], value, larger);
    }
    let result = result.into_tensor();
    Ok(tvec!(
        result
            .cast_to_dt(input.datum_type())?
            .into_owned()
            .into_tvalue()
    ))
}

fn extreme(left: f64, right: f64, larger: bool) -> f64 {
    if left.is_nan() || right.is_nan() {
        f64::NAN
    } else if larger {
        left.max(right)
    } else {
        left.min(right)
    }
}

/// Number of elements that are tested together; larger chunks are not faster.
const CHUNK: usize = 4096;

/// Returns `true` if a tensor contains NaN.
fn has_nan(tensor: &Tensor) -> bool {
    !each(tensor, f32::is_nan, f64::is_nan, f16::is_nan)
}

fn all_finite(tensor: &Tensor) -> bool {
    each(
        tensor,
        |x| !x.is_finite(),
        |x| !x.is_finite(),
        |x| !x.is_finite(),
    )
}

/// Returns `true` if a predicate is false for every element, and for tensors of other dtypes.
fn each(
    tensor: &Tensor,
    single: impl Fn(f32) -> bool + Copy,
    double: impl Fn(f64) -> bool + Copy,
    half: impl Fn(f16) -> bool + Copy,
) -> bool {
    fn none<T: Copy>(values: &[T], is: impl Fn(T) -> bool + Copy) -> bool {
        let mut chunks = values.chunks(CHUNK);
        chunks.all(|chunk| !chunk.iter().fold(false, |found, value| found | is(*value)))
    }
    let Ok(plain) = tensor.try_as_plain_ram() else {
        return true;
    };
    match tensor.datum_type() {
        DatumType::F32 => plain
            .as_slice::<f32>()
            .is_ok_and(|values| none(values, single)),
        DatumType::F64 => plain
            .as_slice::<f64>()
            .is_ok_and(|values| none(values, double)),
        DatumType::F16 => plain
            .as_slice::<f16>()
            .is_ok_and(|values| none(values, half)),
        _ => true,
    }
}
