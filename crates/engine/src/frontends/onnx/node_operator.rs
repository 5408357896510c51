//! ONNX operators of this crate: rows of a name, a number of inputs, and a [`NodeOperator`] with
//! the shape rules and the operators that compute it.

use std::fmt::Debug;

use tract_onnx::model::{ParsingContext, optional_outputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::graph::integer;
use crate::tensor::MAX_TENSOR_BYTES;

/// The result of building a node's operator: the operator, and the names of the outer tensors that
/// it uses.
pub(crate) type Built = TractResult<(Box<dyn InferenceOp>, Vec<String>)>;

/// Builds the operator of a node.
pub(crate) type BuildNode = fn(&ParsingContext<'_>, &NodeProto) -> Built;

/// The inputs and the outputs of an operator whose facts are inferred.
pub(crate) type Tensors<'r> = [&'r [TensorProxy]; 2];

/// The outputs of operators that were added to a graph.
pub(crate) type Wired = TractResult<TVec<OutletId>>;

/// An operator of an ONNX node.
pub(crate) trait NodeOperator: Debug + Clone + Send + Sync + 'static {
    /// Returns the number of outputs.
    fn outputs(&self) -> usize {
        1
    }

    /// Adds the rules for dtypes and shapes. The numbers of tensors are checked already.
    fn rules<'r>(&'r self, s: &mut Solver<'r>, tensors: Tensors<'r>) -> InferenceResult;

    /// Adds the operators that compute it to a graph; `prefix` is the node's name.
    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired;
}

/// Builds an operator with this number of inputs; `None` if its rules check the number.
#[expect(clippy::unnecessary_wraps, reason = "builders have this signature")]
pub(crate) fn operator(
    name: impl Into<StaticName>,
    inputs: impl Into<Option<usize>>,
    of: impl NodeOperator,
) -> Built {
    let (name, inputs) = (name.into(), inputs.into());
    Ok((expand(OperatorRow { name, inputs, of }), vec![]))
}

#[derive(Debug, Clone)]
struct OperatorRow<T> {
    name: StaticName,
    inputs: Option<usize>,
    of: T,
}

impl<T: NodeOperator> Expansion for OperatorRow<T> {
    fn name(&self) -> StaticName {
        self.name.clone()
    }

    fn nboutputs(&self) -> TractResult<usize> {
        Ok(self.of.outputs())
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        s: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> InferenceResult {
        if let Some(count) = self.inputs {
            check_input_arity(inputs, count)?;
        }
        check_output_arity(outputs, self.of.outputs())?;
        self.of.rules(s, [inputs, outputs])
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        self.of.wire(prefix, model, inputs)
    }
}

/// Adds the rule that the output has the shape of the inputs broadcast with each other.
pub(crate) fn broadcast_shape<'r>(
    s: &mut Solver<'r>,
    [inputs, outputs]: Tensors<'r>,
) -> InferenceResult {
    let shapes: Vec<_> = inputs.iter().map(|input| &input.shape).collect();
    s.given_all(shapes, move |s, shapes: Vec<TVec<TDim>>| {
        let shape = tract_onnx::tract_core::broadcast::multi_broadcast(&shapes)?;
        s.equals(&outputs[0].shape, shape)
    })
}

/// Returns the value of a tensor that must be known when the plan is made.
pub(crate) fn stored(model: &TypedModel, outlet: OutletId, what: &str) -> TractResult<Arc<Tensor>> {
    let stored = model.outlet_fact(outlet)?.konst.clone();
    stored.with_context(|| format!("computed {what} are not supported"))
}

/// Returns an axis of a tensor of this rank; negative numbers count from the end.
pub(crate) fn axis_of(axis: i64, rank: usize) -> TractResult<usize> {
    let at = counted_from_start(axis, rank)?;
    at.with_context(|| format!("axis {axis} does not exist: the rank is {rank}"))
}

/// Returns one of `count` positions; negative numbers count from the end. `None` if it does not
/// exist.
pub(crate) fn counted_from_start(place: i64, count: usize) -> TractResult<Option<usize>> {
    let from_end = if place < 0 { i64::try_from(count)? } else { 0 };
    let at = usize::try_from(place.saturating_add(from_end)).ok();
    Ok(at.filter(|at| *at < count))
}

/// Returns which of the first outputs of a node are wanted.
pub(crate) fn wanted_outputs<const N: usize>(node: &NodeProto) -> [bool; N] {
    let mut outputs = optional_outputs(node);
    std::array::from_fn(|_| outputs.next().flatten().is_some())
}

/// Returns those of the outputs that are wanted.
pub(crate) fn chosen<T, const N: usize>(wanted: [bool; N], of: [T; N]) -> TVec<T> {
    let of = of.into_iter().zip(wanted);
    of.filter_map(|(it, is_wanted)| is_wanted.then_some(it))
        .collect()
}

/// Returns an attribute that must be a positive integer.
pub(crate) fn positive(node: &NodeProto, name: &str) -> TractResult<usize> {
    let found = usize::try_from(integer(node, name, 0)).ok();
    found
        .filter(|count| *count > 0)
        .with_context(|| format!("`{name}` is missing"))
}

/// Creates a tensor of zeros of this shape. Sizes that no model may have are an error.
pub(crate) fn zeros(shape: &[usize]) -> TractResult<Tensor> {
    let bytes = shape
        .iter()
        .try_fold(size_of::<f32>(), |all, size| all.checked_mul(*size));
    let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
    ensure!(
        bytes.is_some_and(|bytes| bytes <= MAX_TENSOR_BYTES),
        "a tensor of the shape {shape:?} is too large"
    );
    Tensor::zero_dt(f32::datum_type(), shape)
}

/// Returns the numbers of a tensor as integers.
pub(crate) fn integers_of(tensor: &Tensor) -> TractResult<Vec<i64>> {
    let values = tensor.cast_to::<i64>()?;
    Ok(values.try_as_plain_ram()?.as_slice::<i64>()?.to_vec())
}

/// The dtypes of the first input and of the output; `None` for any dtype of the input, and for an
/// output with the dtype of the input.
pub(crate) type Dtypes = [Option<DatumType>; 2];

/// Builds an operator whose output has the shape of its first input; `wire` adds the operators that
/// compute it.
pub(crate) fn same_shape<F>(
    name: impl Into<StaticName>,
    inputs: usize,
    dtypes: Dtypes,
    wire: F,
) -> Built
where
    F: Fn(&str, &mut TypedModel, &[OutletId]) -> Wired + Clone + Send + Sync + 'static,
{
    operator(name, inputs, SameShape { dtypes, wire })
}

#[derive(Clone)]
struct SameShape<F> {
    dtypes: Dtypes,
    wire: F,
}

impl<F> Debug for SameShape<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.dtypes)
    }
}

impl<F> NodeOperator for SameShape<F>
where
    F: Fn(&str, &mut TypedModel, &[OutletId]) -> Wired + Clone + Send + Sync + 'static,
{
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        let [from, to] = self.dtypes;
        if let Some(from) = from {
            s.equals(&inputs[0].datum_type, from)?;
        }
        match to {
            Some(to) => s.equals(&outputs[0].datum_type, to)?,
            None => s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?,
        }
        s.equals(&inputs[0].shape, &outputs[0].shape)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        (self.wire)(prefix, model, inputs)
    }
}
