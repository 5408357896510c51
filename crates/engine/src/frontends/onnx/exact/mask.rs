//! Boolean masks of `Attention`: the library adds them as 1 and 0.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_hir::internal::*;

use crate::frontends::onnx::graph::integer;
use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::kernel::Kernel;
use crate::graph::watch::WRONG_RESULT;

/// The operator that `repair` inserts before the mask of an attention.
pub(crate) const ADDITIVE_MASK: &str = "pkgtool.AdditiveMask";

/// Builds [`ADDITIVE_MASK`], whose inputs are a mask and the queries. The result has the dtype of
/// the queries.
pub(crate) fn additive(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let is_causal = integer(node, "is_causal", 0) != 0;
    operator("AdditiveMask", 2, AdditiveMask { is_causal })
}

#[derive(Debug, Clone)]
struct AdditiveMask {
    is_causal: bool,
}

impl NodeOperator for AdditiveMask {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].shape, &outputs[0].shape)?;
        s.given_2(
            &inputs[0].datum_type,
            &inputs[1].datum_type,
            move |s, mask, queries| {
                let dtype = if mask == DatumType::Bool {
                    queries
                } else {
                    mask
                };
                s.equals(&outputs[0].datum_type, dtype)
            },
        )
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let mask = model.outlet_fact(inputs[0])?.without_value();
        if mask.datum_type != DatumType::Bool {
            let identity = tract_onnx::tract_core::ops::identity::Identity;
            return model.wire_node(prefix, identity, &inputs[..1]);
        }
        ensure!(
            !self.is_causal,
            "a boolean mask together with `is_causal` is not supported"
        );
        let dtype = model.outlet_fact(inputs[1])?.datum_type;
        let kernel = Kernel::new(
            "AdditiveMask",
            tvec!(dtype.fact(mask.shape)),
            move |inputs| {
                let flags = inputs[0].try_as_plain_ram()?;
                let flags = flags.as_slice::<bool>()?;
                let row = inputs[0].shape().last().copied().unwrap_or(1).max(1);
                // The standard returns zeros there, the library NaN.
                if flags.chunks(row).any(|row| !row.contains(&true)) {
                    bail!("attention of a fully masked row {WRONG_RESULT}");
                }
                let values: Vec<f32> = flags
                    .iter()
                    .map(|flag| if *flag { 0.0 } else { f32::NEG_INFINITY })
                    .collect();
                let values = Tensor::from_shape(inputs[0].shape(), &values)?;
                Ok(tvec!(values.cast_to_dt(dtype)?.into_owned()))
            },
        );
        model.wire_node(prefix, kernel, &inputs[..1])
    }
}
