//! Operators with inputs that are single numbers. The standard requires a tensor without dimensions
//! there. Exporters write one of shape `[1]`, which ONNX Runtime accepts and the library rejects.

use std::ops::Range;

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_hir::internal::*;

use super::cut::dims;
use crate::frontends::onnx::library::library_expansion;
use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};

/// Infers the facts of outputs from those of inputs.
type FactRules =
    for<'r> fn(&mut Solver<'r>, &'r [TensorProxy], &'r [TensorProxy]) -> InferenceResult;

/// Builds `CumSum`.
pub(crate) fn cumsum(context: &ParsingContext<'_>, node: &NodeProto) -> Built {
    build(context, node, 1..2, same_shape)
}

/// Builds `Range`.
pub(crate) fn range(context: &ParsingContext<'_>, node: &NodeProto) -> Built {
    build(context, node, 0..3, of_range)
}

/// Builds `Trilu`.
pub(crate) fn trilu(context: &ParsingContext<'_>, node: &NodeProto) -> Built {
    build(context, node, 1..2, same_shape)
}

fn build(
    context: &ParsingContext<'_>,
    node: &NodeProto,
    scalars: Range<usize>,
    rules: FactRules,
) -> Built {
    let inner = library_expansion(context, node)?;
    let lenient = ScalarInputs {
        inner,
        scalars,
        rules,
    };
    operator(lenient.inner.name(), node.input.len(), lenient)
}

/// An operator of the library whose scalar inputs may have dimensions of size 1.
#[derive(Debug, Clone)]
struct ScalarInputs {
    inner: Box<dyn Expansion>,
    scalars: Range<usize>,
    rules: FactRules,
}

impl NodeOperator for ScalarInputs {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        (self.rules)(s, inputs, outputs)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let mut given: TVec<OutletId> = inputs.into();
        for (at, outlet) in given.iter_mut().enumerate() {
            if self.scalars.contains(&at) {
                *outlet = scalar(&format!("{prefix}.scalar.{at}"), model, *outlet)?;
            }
        }
        self.inner.wire(prefix, model, &given)
    }
}

/// Converts a tensor of one element to one without dimensions; sizes become integers.
fn scalar(prefix: &str, model: &mut TypedModel, from: OutletId) -> TractResult<OutletId> {
    let fact = model.outlet_fact(from)?.without_value();
    let shape = fact.shape.to_tvec();
    ensure!(
        shape.iter().all(|size| *size == TDim::Val(1)),
        "expected one number, got a tensor of shape {shape:?}"
    );
    let mut outlet = from;
    for axis in (0..shape.len()).rev() {
        let name = format!("{prefix}.axis-{axis}");
        outlet = model.wire_node(name, AxisOp::Rm(axis), &[outlet])?[0];
    }
    if fact.datum_type == DatumType::TDim {
        let integer = cast(i64::datum_type());
        outlet = model.wire_node(format!("{prefix}.integer"), integer, &[outlet])?[0];
    }
    Ok(outlet)
}

fn same_shape<'r>(
    solver: &mut Solver<'r>,
    inputs: &'r [TensorProxy],
    outputs: &'r [TensorProxy],
) -> InferenceResult {
    solver.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
    solver.equals(&inputs[0].shape, &outputs[0].shape)
}

fn of_range<'r>(
    solver: &mut Solver<'r>,
    inputs: &'r [TensorProxy],
    outputs: &'r [TensorProxy],
) -> InferenceResult {
    solver.equals(&outputs[0].rank, 1)?;
    let dtypes = inputs.iter().map(|input| (&input.datum_type).bex());
    let dtypes: Vec<_> = dtypes.collect();
    solver.given_all(dtypes, move |solver, dtypes: Vec<DatumType>| {
        let dtype = DatumType::super_type_for(&dtypes)
            .context("the numbers of a range have no common dtype")?;
        let dtype = if dtype.is_tdim() {
            i64::datum_type()
        } else {
            dtype
        };
        solver.equals(&outputs[0].datum_type, dtype)
    })?;
    let values = inputs.iter().map(|input| (&input.value).bex());
    let values: Vec<_> = values.collect();
    solver.given_all(
        values,
        move |solver, values: Vec<Arc<Tensor>>| match length(&values)? {
            Some(length) => solver.equals(&outputs[0].shape[0], length.to_dim()),
            None => Ok(()),
        },
    )
}

/// Returns the number of integers from the first number to the second in steps of the third, if
/// they are known.
fn length(values: &[Arc<Tensor>]) -> TractResult<Option<i64>> {
    let mut numbers = Vec::new();
    for value in values {
        let dtype = value.datum_type();
        ensure!(
            value.len() == 1,
            "expected one number, got a tensor of shape {:?}",
            value.shape()
        );
        if dtype.is_float() {
            return Ok(None);
        }
        for number in dims(value)? {
            match number.to_i64() {
                Ok(number) => numbers.push(i128::from(number)),
                Err(_) => return Ok(None),
            }
        }
    }
    let [start, limit, step] = numbers[..] else {
        bail!("a range needs a start, a limit and a step");
    };
    ensure!(step != 0, "the step of a range is 0");
    let (distance, step) = if step > 0 {
        (limit - start, step)
    } else {
        (start - limit, -step)
    };
    let count = (distance.max(0) + step - 1) / step;
    Ok(Some(i64::try_from(count)?))
}
