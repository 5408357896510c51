//! Means, norms and other sums along axes. The library divides by zero for empty tensors, has no
//! squares of wide integers, and overflows in float16 sums whose mean would not.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_hir::internal::*;
use tract_onnx::tract_hir::ops::nn::Reducer;

use super::numbers::cast_all;
use crate::frontends::onnx::node_operator::{NodeOperator, Tensors, Wired, broadcast_shape};
use crate::graph::kernel::Kernel;

/// The function of the numbers along axes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AxisReduction {
    /// The sum of absolute values.
    Absolute,
    /// The root of the sum of squares.
    Root,
    /// The logarithm of the sum.
    Logarithm,
    /// The mean.
    Mean,
    /// The sum of squares.
    Squares,
}

impl AxisReduction {
    /// Adds it to a graph; the reduced axes keep size 1.
    pub(crate) fn wire(
        self,
        axes: TVec<usize>,
        prefix: &str,
        model: &mut TypedModel,
        input: OutletId,
    ) -> TractResult<OutletId> {
        let fact = model.outlet_fact(input)?.clone();
        let dtype = fact.datum_type;
        let is_empty = axes.iter().any(|axis| fact.shape[*axis] == 0.to_dim());
        let has_code = dtype.is_float() || dtype == DatumType::TDim;
        if has_code && !is_empty {
            let reducer = match self {
                Self::Absolute => Reducer::L1,
                Self::Root => Reducer::L2,
                Self::Logarithm => Reducer::LogSum,
                Self::Mean => Reducer::Mean,
                Self::Squares => Reducer::SumSquare,
            };
            return reducer.wire(axes, prefix, model, input);
        }
        let mut shape = fact.shape.to_tvec();
        for axis in &axes {
            shape[*axis] = 1.to_dim();
        }
        let kernel = Kernel::new("Reduce", tvec!(dtype.fact(shape)), move |inputs| {
            let result = if dtype.is_float() {
                self.real(&axes, &inputs[0])?
            } else {
                self.whole(&axes, &inputs[0])?
            };
            Ok(tvec!(result.cast_to_dt(dtype)?.into_owned()))
        });
        Ok(model.wire_node(prefix, kernel, &[input])?[0])
    }

    /// Computes empty tensors; the library computes the others.
    fn real(self, axes: &[usize], input: &Tensor) -> TractResult<Tensor> {
        let shape = kept(axes, input.shape());
        let nothing = match self {
            Self::Logarithm => f64::NEG_INFINITY,
            // The same as ONNX Runtime; the standard leaves it open.
            Self::Mean | Self::Absolute | Self::Root | Self::Squares => 0.0,
        };
        ensure!(input.len() == 0, "expected an empty tensor");
        Ok(tract_ndarray::ArrayD::from_elem(&*shape, nothing).into_tensor())
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a root and a logarithm of integers are truncated"
    )]
    fn whole(self, axes: &[usize], input: &Tensor) -> TractResult<Tensor> {
        let values = input.cast_to::<i64>()?;
        let view = values.to_plain_array_view::<i64>()?;
        let mut sums = tract_ndarray::ArrayD::from_elem(&*kept(axes, input.shape()), 0_i64);
        for (mut at, value) in view.indexed_iter() {
            for axis in axes {
                at[*axis] = 0;
            }
            let term = match self {
                Self::Absolute => value.wrapping_abs(),
                Self::Root | Self::Squares => value.wrapping_mul(*value),
                Self::Logarithm | Self::Mean => *value,
            };
            sums[&at] = sums[&at].wrapping_add(term);
        }
        let count: usize = axes.iter().map(|axis| input.shape()[*axis]).product();
        let count = i64::try_from(count)?.max(1);
        let results = sums.mapv(|sum| match self {
            Self::Absolute | Self::Squares => sum,
            Self::Root => (sum as f64).sqrt() as i64,
            Self::Logarithm if sum == 0 && input.datum_type() == DatumType::I32 => {
                i64::from(i32::MIN)
            }
            Self::Logarithm if sum == 0 => i64::MIN,
            Self::Logarithm => (sum as f64).ln() as i64,
            Self::Mean => sum.wrapping_div(count),
        });
        Ok(results.into_tensor())
    }
}

fn kept(axes: &[usize], shape: &[usize]) -> TVec<usize> {
    let sizes = shape.iter().enumerate();
    sizes
        .map(|(axis, size)| if axes.contains(&axis) { 1 } else { *size })
        .collect()
}

/// `Mean`.
#[derive(Debug, Clone)]
pub(crate) struct MeanOperator;

impl NodeOperator for MeanOperator {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        ensure!(!inputs.is_empty(), "Mean needs an input");
        for input in inputs {
            s.equals(&input.datum_type, &outputs[0].datum_type)?;
        }
        broadcast_shape(s, [inputs, outputs])
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        use tract_onnx::tract_core::ops::cast::cast;
        use tract_onnx::tract_core::ops::math::{add, div};
        use tract_onnx::tract_hir::ops::binary::wire_rank_broadcast;

        let dtype = model.outlet_fact(inputs[0])?.datum_type;
        let operating = if dtype == DatumType::F16 {
            DatumType::F32
        } else {
            dtype
        };
        let mut wires: TVec<OutletId> = inputs.into();
        cast_all(prefix, model, &mut wires, operating)?;
        let mut sum = wires[0];
        for (place, wire) in wires.iter().enumerate().skip(1) {
            let name = format!("{prefix}.sum-{place}");
            let pair = wire_rank_broadcast(&name, model, &[sum, *wire])?;
            sum = model.wire_node(name, add(), &pair)?[0];
        }
        let count = tensor0(i64::try_from(inputs.len())?)
            .cast_to_dt(operating)?
            .into_owned();
        let count = model.add_const(format!("{prefix}.count"), count)?;
        let name = format!("{prefix}.mean");
        let pair = wire_rank_broadcast(&name, model, &[sum, count])?;
        let mean = model.wire_node(name, div(), &pair)?;
        model.wire_node(prefix, cast(dtype), &mean)
    }
}
