//! `BitCast`: the same bits as elements of another dtype.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use crate::frontends::onnx::node_operator::{Built, same_shape};
use crate::graph::kernel::Kernel;

const NAME: &str = "BitCast";

/// Builds a `BitCast`.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let to: DatumType = node.get_attr("to")?;
    // Other bytes than 0 and 1 are no boolean.
    ensure!(
        is_plain(to) && to != bool::datum_type(),
        "casts of bits to {to:?} are not supported"
    );
    same_shape(NAME, 1, [None, Some(to)], move |prefix, model, inputs| {
        let from = model.outlet_fact(inputs[0])?.datum_type;
        ensure!(
            is_plain(from) && from.size_of() == to.size_of(),
            "the bits of {from:?} do not fit {to:?}"
        );
        let kernel = Kernel::of_elements(NAME, to, move |inputs| {
            let mut cast = Tensor::zero_dt(to, inputs[0].shape())?;
            let source = inputs[0].try_as_plain_ram()?;
            let mut view = cast.try_as_plain_ram_mut()?;
            view.as_bytes_mut().copy_from_slice(source.as_bytes());
            Ok(tvec!(cast))
        });
        model.wire_node(prefix, kernel, inputs)
    })
}

/// Returns whether elements are plain bytes.
fn is_plain(dtype: DatumType) -> bool {
    dtype.is_number() && !dtype.is_quantized() || dtype == bool::datum_type()
}
