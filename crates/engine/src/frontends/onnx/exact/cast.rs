//! `Cast` to int64. The library converts the numbers to dimensions, through 32 bits. This module
//! keeps all 64 bits.

use tract_onnx::tract_core::internal::*;

use crate::frontends::onnx::node_operator::{Built, Wired, same_shape};
use crate::graph::kernel::Kernel;

/// The name under which [`to_dimensions`] is registered. `Cast` to other dtypes is correct.
pub(crate) const CAST_TO_INT64: &str = "pkgtool.CastToInt64";

/// Builds `Cast` to int64.
pub(crate) fn to_dimensions() -> Built {
    same_shape("Cast", 1, [None, Some(DatumType::TDim)], wire)
}

fn wire(prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
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
