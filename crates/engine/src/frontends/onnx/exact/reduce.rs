//! `ReduceLogSumExp` without overflow, and `ReduceMax`, `ReduceMin` and `ReduceSum` of empty
//! tensors.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_core::ops::nn::{Reduce, Reducer};
use tract_onnx::tract_hir::internal::*;

use super::mean::AxisReduction;
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, axis_of, integers_of, operator,
};
use crate::graph::corrections::extreme;
use crate::graph::kernel::Kernel;

/// The function of the numbers along the axes.
#[derive(Debug, Clone, Copy)]
enum ReduceFunction {
    /// The logarithm of the sum of exponentials.
    Exponents,
    /// A reducer of the library.
    Extreme(Reducer),
    /// A reduction of [`super::mean`].
    Along(AxisReduction),
}

/// Builds a reduction, whose axes are an attribute or an input.
pub(crate) fn build(context: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let (name, kind) = match node.op_type.as_str() {
        "ReduceL1" => ("ReduceL1", ReduceFunction::Along(AxisReduction::Absolute)),
        "ReduceL2" => ("ReduceL2", ReduceFunction::Along(AxisReduction::Root)),
        "ReduceLogSum" => (
            "ReduceLogSum",
            ReduceFunction::Along(AxisReduction::Logarithm),
        ),
        "ReduceLogSumExp" => ("ReduceLogSumExp", ReduceFunction::Exponents),
        // The library computes these three for empty tensors while it builds the graph.
        "ReduceMax" => ("ReduceMax", ReduceFunction::Extreme(Reducer::Max)),
        "ReduceMin" => ("ReduceMin", ReduceFunction::Extreme(Reducer::Min)),
        "ReduceSum" => ("ReduceSum", ReduceFunction::Extreme(Reducer::Sum)),
        "ReduceMean" => ("ReduceMean", ReduceFunction::Along(AxisReduction::Mean)),
        "ReduceSumSquare" => (
            "ReduceSumSquare",
            ReduceFunction::Along(AxisReduction::Squares),
        ),
        other => bail!("{other} is not a known reduction"),
    };
    let takes_axes = node.input.len() > 1 && !node.input[1].is_empty();
    let since = if name == "ReduceSum" { 13 } else { 18 };
    let by_input = context.onnx_operator_set_version >= since;
    let axes = if by_input {
        None
    } else {
        node.get_attr_opt_vec::<i64>("axes")?
    };
    let reduction = ReduceOperator {
        name,
        kind,
        axes,
        takes_axes,
        keeps: node.get_attr_opt::<i64>("keepdims")?.unwrap_or(1) == 1,
        is_noop: node
            .get_attr_opt::<i64>("noop_with_empty_axes")?
            .unwrap_or(0)
            == 1,
    };
    operator(name, 1 + usize::from(takes_axes), reduction)
}

fn of_exponents(values: &[f64]) -> f64 {
    let largest = values
        .iter()
        .copied()
        .fold(f64::NEG_INFINITY, |most, value| {
            if value > most || value.is_nan() {
                value
            } else {
                most
            }
        });
    if !largest.is_finite() {
        // The result is infinite or NaN; without elements it is the logarithm of zero.
        return largest;
    }
    let sum: f64 = values.iter().map(|value| (value - largest).exp()).sum();
    largest + sum.ln()
}

#[derive(Debug, Clone)]
struct ReduceOperator {
    name: &'static str,
    kind: ReduceFunction,
    axes: Option<Vec<i64>>,
    takes_axes: bool,
    keeps: bool,
    is_noop: bool,
}

impl ReduceOperator {
    /// Returns, for each axis of a tensor of this rank, `true` if it is reduced.
    fn reduced(&self, given: Option<&[i64]>, rank: usize) -> TractResult<Vec<bool>> {
        let given = given
            .or(self.axes.as_deref())
            .filter(|axes| !axes.is_empty());
        let Some(axes) = given else {
            return Ok(vec![!self.is_noop; rank]);
        };
        let mut reduced = vec![false; rank];
        for axis in axes {
            reduced[axis_of(*axis, rank)?] = true;
        }
        Ok(reduced)
    }

    fn shape<D: DimLike>(&self, reduced: &[bool], shape: &[D]) -> TVec<D> {
        let axes = shape.iter().zip(reduced);
        axes.filter(|(_, reduced)| self.keeps || !**reduced)
            .map(|(size, reduced)| if *reduced { D::one() } else { size.clone() })
            .collect()
    }
}

impl NodeOperator for ReduceOperator {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        if self.takes_axes {
            return s.given_2(&inputs[0].shape, &inputs[1].value, move |s, shape, axes| {
                let axes = integers_of(&axes)?;
                let reduced = self.reduced(Some(&axes), shape.len())?;
                s.equals(&outputs[0].shape, self.shape(&reduced, &shape))
            });
        }
        s.given(&inputs[0].shape, move |s, shape| {
            let reduced = self.reduced(None, shape.len())?;
            s.equals(&outputs[0].shape, self.shape(&reduced, &shape))
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let given = match inputs.get(1) {
            Some(axes) => {
                let axes = model.outlet_fact(*axes)?.konst.clone();
                let axes = axes.context("the axes must be known when the plan is made")?;
                Some(integers_of(axes.as_ref())?)
            }
            None => None,
        };
        let fact = model.outlet_fact(inputs[0])?;
        let dtype = fact.datum_type;
        let reduced = self.reduced(given.as_deref(), fact.rank())?;
        if let ReduceFunction::Extreme(reducer) = self.kind {
            return self.wire_extreme(reducer, &reduced, prefix, model, inputs[0]);
        }
        if let ReduceFunction::Along(along) = self.kind {
            let axes = (0..reduced.len()).filter(|axis| reduced[*axis]).collect();
            let wire = along.wire(axes, prefix, model, inputs[0])?;
            return self.without(&reduced, prefix, model, wire);
        }
        let made = dtype.fact(self.shape(&reduced, &fact.shape));
        let this = self.clone();
        let kernel = Kernel::new(self.name, tvec!(made), move |inputs| {
            Ok(tvec!(
                this.eval(&reduced, &inputs[0])?
                    .cast_to_dt(dtype)?
                    .into_owned()
            ))
        });
        model.wire_node(prefix, kernel, &inputs[..1])
    }
}

impl ReduceOperator {
    fn wire_extreme(
        &self,
        reducer: Reducer,
        along: &[bool],
        prefix: &str,
        model: &mut TypedModel,
        input: OutletId,
    ) -> TractResult<TVec<OutletId>> {
        let axes: TVec<usize> = (0..along.len()).filter(|axis| along[*axis]).collect();
        let TypedFact {
            datum_type, shape, ..
        } = model.outlet_fact(input)?.clone();
        // The library's reduction refuses booleans, and numbers that may be sizes.
        let other = match datum_type {
            DatumType::TDim => Some(DatumType::I64),
            DatumType::Bool => Some(DatumType::U8),
            _ => None,
        };
        let input = match other {
            Some(other) => {
                let name = format!("{prefix}.integers");
                model.wire_node(name, cast(other), &[input])?[0]
            }
            None => input,
        };
        let is_empty = axes.iter().any(|axis| shape[*axis] == 0.to_dim());
        let reduce: Box<dyn TypedOp> = Box::new(Reduce::new(axes.clone(), reducer));
        let reduce = if is_empty {
            extreme::settled(reduce.as_ref()).unwrap_or(reduce)
        } else {
            reduce
        };
        let mut wire = model.wire_node(prefix, reduce, &[input])?[0];
        if other.is_some() {
            wire = model.wire_node(format!("{prefix}.original"), cast(datum_type), &[wire])?[0];
        }
        self.without(along, prefix, model, wire)
    }

    /// Removes the axes along which the tensor was reduced, unless they are kept.
    fn without(
        &self,
        along: &[bool],
        prefix: &str,
        model: &mut TypedModel,
        mut wire: OutletId,
    ) -> TractResult<TVec<OutletId>> {
        let axes = (0..along.len()).filter(|axis| along[*axis] && !self.keeps);
        for axis in axes.rev() {
            let name = format!("{prefix}.without-{axis}");
            wire = model.wire_node(name, AxisOp::Rm(axis), &[wire])?[0];
        }
        Ok(tvec!(wire))
    }

    fn eval(&self, reduced: &[bool], input: &Tensor) -> TractResult<Tensor> {
        let values = input.cast_to::<f64>()?;
        let view = values.to_plain_array_view::<f64>()?;
        if !reduced.contains(&true) && self.is_noop {
            return Ok(values.into_owned());
        }
        let kept: Vec<usize> = (0..reduced.len()).filter(|axis| !reduced[*axis]).collect();
        let gone = (0..reduced.len()).filter(|axis| reduced[*axis]);
        let order: Vec<usize> = kept.iter().copied().chain(gone).collect();
        let moved = view.permuted_axes(order);
        let rows: usize = kept.iter().map(|axis| input.shape()[*axis]).product();
        let moved: Vec<f64> = moved.iter().copied().collect();
        let width = moved.len().checked_div(rows).unwrap_or(0);
        let results = (0..rows).map(|row| of_exponents(&moved[row * width..][..width]));
        let results: Vec<f64> = results.collect();
        Tensor::from_shape(&self.shape(reduced, input.shape()), &results)
    }
}
