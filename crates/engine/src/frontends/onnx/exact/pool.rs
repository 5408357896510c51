//! Pooling operators.
//!
//! `GlobalLpPool`: the library computes the mean instead of the sum, and powers of signed values.
//! `MaxPool`: for integers that are all minimal, the library returns no position. It also
//! mishandles windows larger than the padded input.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_hir::internal::*;

use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::kernel::Kernel;

/// Builds `GlobalLpPool`.
pub(crate) fn global_lp_pool(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let power: i64 = node.get_attr_opt("p")?.unwrap_or(2);
    ensure!(power > 0, "GlobalLpPool needs a positive p, got {power}");
    let power = i32::try_from(power)?;
    operator("GlobalLpPool", 1, GlobalLpPool { power })
}

#[derive(Debug, Clone)]
struct GlobalLpPool {
    power: i32,
}

impl NodeOperator for GlobalLpPool {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        s.given(&inputs[0].shape, move |s, shape| {
            s.equals(&outputs[0].shape, pooled(&shape)?)
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let fact = model.outlet_fact(inputs[0])?;
        let dtype = fact.datum_type;
        let made = dtype.fact(pooled(&fact.shape)?);
        let power = self.power;
        let kernel = Kernel::new("GlobalLpPool", tvec!(made), move |inputs| {
            let shape = pooled(inputs[0].shape())?;
            let window = inputs[0].shape()[2..].iter().product::<usize>();
            let values = inputs[0].cast_to::<f64>()?;
            let values = values.try_as_plain_ram()?;
            let values = values.as_slice::<f64>()?;
            let norms: Vec<f64> = if window == 0 {
                vec![0.0; shape.iter().product()]
            } else {
                let sums = values.chunks(window);
                let sums = sums.map(|part| part.iter().map(|x| x.abs().powi(power)).sum::<f64>());
                sums.map(|sum| sum.powf(1.0 / f64::from(power))).collect()
            };
            let norms = Tensor::from_shape(&shape, &norms)?;
            Ok(tvec!(norms.cast_to_dt(dtype)?.into_owned()))
        });
        model.wire_node(prefix, kernel, inputs)
    }
}

/// Returns the shape with size 1 along each spatial axis.
fn pooled<D: DimLike>(shape: &[D]) -> TractResult<TVec<D>> {
    ensure!(shape.len() > 2, "GlobalLpPool needs at least three axes");
    let axes = shape.iter().enumerate();
    Ok(axes
        .map(|(axis, size)| if axis < 2 { size.clone() } else { D::one() })
        .collect())
}
