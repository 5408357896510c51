//! `Compress`. The library supports it for known tensors only. Here only the condition must be
//! known when the plan is made, as small inputs are.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::Gather;
use tract_onnx::tract_hir::internal::*;

use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, axis_of, operator,
};

/// Builds `Compress`.
pub(crate) fn compress(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let axis = node.get_attr_opt("axis")?;
    operator("Compress", 2, Compress { axis })
}

#[derive(Debug, Clone)]
struct Compress {
    axis: Option<i64>,
}

/// Returns the positions where a condition is true.
fn places(condition: &Tensor) -> TractResult<Vec<i64>> {
    let flags = condition.try_as_plain_ram()?;
    let flags = flags.as_slice::<bool>()?.iter().zip(0..);
    Ok(flags
        .filter_map(|(flag, place)| flag.then_some(place))
        .collect())
}

impl Compress {
    /// Returns the axis along which elements are removed, for a tensor of this rank.
    fn axis(&self, rank: usize) -> TractResult<usize> {
        self.axis.map_or(Ok(0), |axis| axis_of(axis, rank))
    }

    /// Returns the shape before elements are removed.
    fn before<D: DimLike>(&self, shape: &[D]) -> TVec<D> {
        if self.axis.is_some() {
            return shape.into();
        }
        tvec!(shape.iter().cloned().product())
    }
}

impl NodeOperator for Compress {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        s.equals(&inputs[1].datum_type, bool::datum_type())?;
        s.equals(&inputs[1].rank, 1)?;
        s.given_2(
            &inputs[0].shape,
            &inputs[1].value,
            move |s, shape, condition| {
                let axis = self.axis(shape.len())?;
                let mut shape = self.before(&shape);
                shape[axis] = places(&condition)?.len().to_dim();
                s.equals(&outputs[0].shape, shape)
            },
        )
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let condition = model.outlet_fact(inputs[1])?.konst.clone();
        let condition = condition.context("a condition that only a run knows is not supported")?;
        let places = places(&condition)?;
        let shape = model.outlet_fact(inputs[0])?.shape.to_tvec();
        let axis = self.axis(shape.len())?;
        let before = self.before(&shape);
        let size = before[axis].to_i64().unwrap_or(i64::MAX);
        if let Some(last) = places.last().filter(|last| **last >= size) {
            bail!("the condition selects position {last} of {size}");
        }
        let mut data = inputs[0];
        if self.axis.is_none() && shape.len() != 1 {
            let flat = AxisOp::Reshape(0, shape, before);
            data = model.wire_node(format!("{prefix}.flat"), flat, &[data])?[0];
        }
        let places = model.add_const(format!("{prefix}.places"), tensor1(&places))?;
        model.wire_node(prefix, Gather::new(axis), &[data, places])
    }
}
