//! Sums of products without kernels in the library: any equation and any dtype, computed element by
//! element.

use tract_onnx::tract_core::internal::tract_ndarray::Dimension;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::cast::Cast;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;

use super::mended::{mended, unchanged};
use crate::graph::kernel::Kernel;
use crate::graph::watch::WRONG_RESULT;

/// Replaces three kinds of products. For integers wider or narrower than 32 bits the library
/// panics. For divisions whose last bit decides an integer it multiplies by a reciprocal. For
/// fractions times a constant zero it returns zeros even for NaN and infinities.
pub(crate) fn prepare(model: &mut TypedModel) {
    let mut replaced: Vec<(usize, Box<dyn TypedOp>)> = Vec::new();
    for node in model.nodes() {
        if let Some(product) = node.op_as::<EinSum>()
            && product.q_params.is_none()
            && product.operating_dt.is_integer()
            && product.operating_dt != DatumType::I32
        {
            let (terms, output) = product.axes.to_strs();
            let terms = terms.into_iter().map(|term| term.chars().collect());
            let sums = Sums {
                terms: terms.collect(),
                output: output[0].chars().collect(),
            };
            let fact = node.outputs[0].fact.without_value();
            replaced.push((node.id, Box::new(sums.kernel(fact))));
        }
        if let Some(op) = node.op_as::<TypedBinOp>()
            && op.0.name() == "Mul"
            && node.outputs[0].fact.datum_type.is_float()
            && node.inputs.iter().any(|input| is_zero(model, *input))
        {
            replaced.push((node.id, unchanged(op)));
        }
        let is_division = node
            .op_as::<TypedBinOp>()
            .is_some_and(|op| op.0.name() == "Div");
        if is_division
            && node.outputs[0].fact.datum_type.is_float()
            && (node.outputs[0]
                .successors
                .iter()
                .any(|next| makes_whole(model.node(next.node)))
                || model
                    .outlet_fact(node.inputs[1])
                    .is_ok_and(|divisor| has_none(divisor.konst.as_deref())))
        {
            let division = division(node.outputs[0].fact.without_value());
            replaced.push((node.id, Box::new(division)));
        }
    }
    for (node, op) in replaced {
        model.nodes[node].op = op;
    }
}

/// Returns `true` if all elements of a tensor are known to be zero.
fn is_zero(model: &TypedModel, outlet: OutletId) -> bool {
    let fact = model.outlet_fact(outlet);
    // Stored tensors with equal elements have a uniform fact, too.
    let uniform = fact.ok().and_then(|fact| fact.uniform.as_ref());
    uniform.is_some_and(|value| {
        value
            .cast_to_scalar::<f64>()
            .is_ok_and(|value| value == 0.0)
    })
}

/// Returns the replacement of a reciprocal that the library made of a divisor. For numbers without
/// a representable reciprocal the quotient would be wrong.
pub(crate) fn settled(name: &str, operator: &dyn TypedOp) -> Option<Box<dyn TypedOp>> {
    let element_wise = operator.as_op().downcast_ref::<ElementWiseOp>()?;
    let is_divisor = name.ends_with("-recip") && element_wise.0.name() == "Recip";
    is_divisor.then(|| mended(operator, reciprocal))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "corrections have this signature"
)]
fn reciprocal(
    inner: &dyn TypedOp,
    context: &EvalContext,
    inputs: TVec<TValue>,
) -> TractResult<TVec<TValue>> {
    let outputs = inner.eval(context, inputs.clone())?;
    let are_good = match inputs[0].datum_type() {
        DatumType::F32 => all_pairs::<f32>(&inputs[0], &outputs[0], |from, to| {
            from == 0.0 || from.is_infinite() || !(to.is_infinite() || to.abs() < f32::MIN_POSITIVE)
        })?,
        DatumType::F64 => all_pairs::<f64>(&inputs[0], &outputs[0], |from, to| {
            from == 0.0 || from.is_infinite() || !(to.is_infinite() || to.abs() < f64::MIN_POSITIVE)
        })?,
        _ => true,
    };
    ensure!(
        are_good,
        "a division by a number without a reciprocal {WRONG_RESULT}"
    );
    Ok(outputs)
}

fn all_pairs<T: Datum + Copy>(
    from: &Tensor,
    to: &Tensor,
    is_good: impl Fn(T, T) -> bool,
) -> TractResult<bool> {
    let (from, to) = (from.try_as_plain_ram()?, to.try_as_plain_ram()?);
    let mut pairs = from.as_slice::<T>()?.iter().zip(to.as_slice::<T>()?);
    Ok(pairs.all(|(from, to)| is_good(*from, *to)))
}

/// Returns `true` if a stored divisor has numbers without a representable reciprocal.
fn has_none(divisor: Option<&Tensor>) -> bool {
    let is_without = |value: f64, least: f64, most: f64| {
        value != 0.0 && value.is_finite() && !(least..=most).contains(&value.abs())
    };
    let Some((divisor, plain)) = divisor.and_then(|it| Some((it, it.try_as_plain_ram().ok()?)))
    else {
        return false;
    };
    match divisor.datum_type() {
        DatumType::F32 => plain.as_slice::<f32>().is_ok_and(|values| {
            let (least, most) = (1.0 / f32::MAX, 1.0 / f32::MIN_POSITIVE);
            let mut values = values.iter();
            values.any(|value| is_without((*value).into(), least.into(), most.into()))
        }),
        DatumType::F64 => plain.as_slice::<f64>().is_ok_and(|values| {
            let (least, most) = (1.0 / f64::MAX, 1.0 / f64::MIN_POSITIVE);
            values.iter().any(|value| is_without(*value, least, most))
        }),
        _ => false,
    }
}

/// Returns `true` if a node turns fractions into integers.
fn makes_whole(node: &TypedNode) -> bool {
    let name = node.op.name();
    let rounds = ["Round", "Floor", "Ceil"];
    let cast = node.op_as::<Cast>();
    rounds.iter().any(|part| name.starts_with(part))
        || cast.is_some_and(|cast| cast.to.is_integer())
}

fn division(fact: TypedFact) -> Kernel {
    Kernel::new("Div", tvec!(fact), |inputs| {
        let [left, right] = inputs else {
            bail!("Div needs two tensors");
        };
        // A float64 quotient, rounded once more, equals the float32 quotient.
        let quotient = super::extreme::in_double(left, right, |left, right| left / right)?;
        Ok(tvec!(quotient))
    })
}

/// A sum of products, given by an equation: a label for each axis of each operand.
#[derive(Debug, Clone)]
pub(crate) struct Sums {
    /// Labels of each operand's axes.
    pub(crate) terms: Vec<Vec<char>>,
    /// Labels of the result's axes.
    pub(crate) output: Vec<char>,
}

impl Sums {
    /// Creates an operator that computes it.
    pub(crate) fn kernel(self, fact: TypedFact) -> Kernel {
        Kernel::new("SumOfProducts", tvec!(fact), move |inputs| {
            let dtype = inputs[0].datum_type();
            let result = if dtype.is_float() {
                self.real(inputs)?
            } else {
                self.whole(inputs)?
            };
            Ok(tvec!(result.cast_to_dt(dtype)?.into_owned()))
        })
    }

    fn real(&self, inputs: &[TValue]) -> TractResult<Tensor> {
        let values = inputs
            .iter()
            .map(|input| Ok(input.cast_to::<f64>()?.into_owned()));
        let values = values.collect::<TractResult<Vec<_>>>()?;
        self.eval::<f64>(
            &values,
            1.0,
            |product, value| product * value,
            |sum, value| sum + value,
        )
    }

    fn whole(&self, inputs: &[TValue]) -> TractResult<Tensor> {
        let values = inputs
            .iter()
            .map(|input| Ok(input.cast_to::<i64>()?.into_owned()));
        let values = values.collect::<TractResult<Vec<_>>>()?;
        self.eval::<i64>(&values, 1, i64::wrapping_mul, i64::wrapping_add)
    }

    fn eval<T: Datum + Copy + Default>(
        &self,
        inputs: &[Tensor],
        one: T,
        times: impl Fn(T, T) -> T,
        plus: impl Fn(T, T) -> T,
    ) -> TractResult<Tensor> {
        let mut labels = self.output.clone();
        for label in self.terms.iter().flatten() {
            if !labels.contains(label) {
                labels.push(*label);
            }
        }
        let mut sizes = vec![1; labels.len()];
        for (term, input) in self.terms.iter().zip(inputs) {
            for (label, size) in term.iter().zip(input.shape()) {
                let at = place(&labels, *label);
                ensure!(
                    sizes[at] == 1 || *size == 1 || sizes[at] == *size,
                    "the label `{label}` has the sizes {} and {size}",
                    sizes[at]
                );
                if sizes[at] == 1 {
                    sizes[at] = *size;
                }
            }
        }
        let steps = self.terms.iter().zip(inputs);
        let steps: Vec<Vec<usize>> = steps
            .map(|(term, input)| {
                let mut steps = vec![0; labels.len()];
                for (axis, label) in term.iter().enumerate() {
                    if input.shape()[axis] != 1 {
                        steps[place(&labels, *label)] +=
                            input.shape()[axis + 1..].iter().product::<usize>();
                    }
                }
                steps
            })
            .collect();
        let (outer, inner) = sizes.split_at(self.output.len());
        let plain = inputs.iter().map(Tensor::try_as_plain_ram);
        let plain = plain.collect::<TractResult<Vec<_>>>()?;
        let slices = plain.iter().map(PlainView::as_slice::<T>);
        let slices = slices.collect::<TractResult<Vec<_>>>()?;
        let mut result = Tensor::zero_dt(T::datum_type(), outer)?;
        {
            let mut view = result.try_as_plain_ram_mut()?;
            let cells = view.as_slice_mut::<T>()?;
            for (cell, at) in cells.iter_mut().zip(tract_ndarray::indices(outer)) {
                let mut sum = T::default();
                for within in tract_ndarray::indices(inner) {
                    let product = slices
                        .iter()
                        .zip(&steps)
                        .fold(one, |product, (slice, steps)| {
                            let at = at.as_array_view().into_iter().chain(within.as_array_view());
                            let index: usize = at.zip(steps).map(|(at, step)| at * step).sum();
                            times(product, slice[index])
                        });
                    sum = plus(sum, product);
                }
                *cell = sum;
            }
        }
        Ok(result)
    }
}

fn place(labels: &[char], label: char) -> usize {
    labels
        .iter()
        .position(|known| *known == label)
        .expect("labels are those of the operands")
}
