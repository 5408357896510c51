//! Integer operators: powers of one dtype by another, and reductions of unsigned 32-bit and 64-bit
//! integers, which the library does not treat as numbers.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_hir::internal::*;
use tract_onnx::tract_hir::ops::binary::wire_rank_broadcast;

use crate::frontends::onnx::node_operator::{NodeOperator, Tensors, Wired, broadcast_shape};

/// `Pow`, whose result has the dtype of its base.
#[derive(Debug, Clone)]
pub(crate) struct Pow;

impl NodeOperator for Pow {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        broadcast_shape(s, [inputs, outputs])
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let dtype = model.outlet_fact(inputs[0])?.datum_type;
        let exponent = model.outlet_fact(inputs[1])?.datum_type;
        let mut operating = if dtype.is_integer() == exponent.is_integer() {
            dtype.common_super_type(exponent)
        } else {
            Some(DatumType::F64)
        };
        if dtype.is_float() && exponent.is_integer() {
            operating = Some(dtype);
        }
        let operating = operating
            .with_context(|| format!("a power of {dtype:?} by {exponent:?} is not supported"))?;
        let mut wires = wire_rank_broadcast(prefix, model, inputs)?;
        cast_all(prefix, model, &mut wires, operating)?;
        let power = tract_onnx::tract_hir::ops::math::pow();
        if operating == dtype {
            return model.wire_node(prefix, power, &wires);
        }
        let wires = model.wire_node(format!("{prefix}.power"), power, &wires)?;
        model.wire_node(prefix, cast(dtype), &wires)
    }
}

/// Casts tensors to this dtype.
pub(crate) fn cast_all(
    prefix: &str,
    model: &mut TypedModel,
    wires: &mut [OutletId],
    dtype: DatumType,
) -> TractResult<()> {
    for (place, wire) in wires.iter_mut().enumerate() {
        if model.outlet_fact(*wire)?.datum_type != dtype {
            let name = format!("{prefix}.cast-{place}");
            *wire = model.wire_node(name, cast(dtype), &[*wire])?[0];
        }
    }
    Ok(())
}
