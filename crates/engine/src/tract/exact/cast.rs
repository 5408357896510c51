//! `Cast` to int64. The library converts the numbers to dimensions, through 32 bits. This module
//! keeps all 64 bits.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_hir::internal::*;

use crate::tract::kernel::Kernel;

type Built = TractResult<(Box<dyn InferenceOp>, Vec<String>)>;

/// The name under which [`to_dimensions`] is registered. `Cast` to other dtypes is correct.
pub(in crate::tract) const CAST_TO_INT64: &str = "pkgtool.CastToInt64";

/// Builds `Cast` to int64.
#[expect(clippy::unnecessary_wraps, reason = "builders have this signature")]
pub(super) fn to_dimensions(_: &ParsingContext<'_>, _: &NodeProto) -> Built {
    Ok((expand(ToDimensions), vec![]))
}

#[derive(Debug, Clone)]
struct ToDimensions;

impl Expansion for ToDimensions {
    fn name(&self) -> StaticName {
        "Cast".into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        solver: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> InferenceResult {
        check_input_arity(inputs, 1)?;
        check_output_arity(outputs, 1)?;
        solver.equals(&outputs[0].datum_type, DatumType::TDim)?;
        solver.equals(&outputs[0].shape, &inputs[0].shape)
    }

    fn wire(
        &self,
        prefix: &str,
        model: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let fact = model.outlet_fact(inputs[0])?;
        let from = fact.datum_type;
        if !(from.is_float() || matches!(from.size_of(), 4 | 8) && from.is_number()) {
            let cast = tract_onnx::tract_core::ops::cast::cast(DatumType::TDim);
            return model.wire_node(prefix, cast, inputs);
        }
        let made = DatumType::TDim.fact(fact.shape.clone());
        let kernel = Kernel::new("Cast", tvec!(made), |inputs| {
            let whole = inputs[0].cast_to::<i64>()?;
            let whole = whole.try_as_plain_ram()?;
            let whole = whole.as_slice::<i64>()?.iter();
            let dimensions = whole.map(ToDim::to_dim).collect();
            let dimensions = tract_ndarray::ArrayD::from_shape_vec(inputs[0].shape(), dimensions)?;
            Ok(tvec!(dimensions.into_tensor()))
        });
        model.wire_node(prefix, kernel, inputs)
    }
}
