//! Summarises the payload of an XNNPACK delegate: operators, computation types and weights.

use super::super::content::{PayloadSummary, QuantizationScheme, WeightStorage};
use super::super::storage::ByteRange;
use super::graph::{Datatype, Quantization, XnnpackGraph};
use super::payload::XnnpackParts;
use crate::FormatError;
use pkgtool_base::source::ReadAt;

/// Returns the contents of a delegate's payload.
pub(in super::super) fn content(
    source: &dyn ReadAt,
    payload: ByteRange,
) -> Result<PayloadSummary, FormatError> {
    let graph = XnnpackGraph::read(source, payload)?;
    let mut content = PayloadSummary::begin(source, |pages| {
        let parts = XnnpackParts::find(pages, payload)?;
        Ok(parts.map(|parts| parts.graph))
    })?;
    for node in &graph.nodes {
        content.operator(node.name);
    }
    for value in graph.values.values() {
        let (element, is_quantised) = element_of(value.datatype);
        if value.data.is_none() {
            if is_quantised {
                content.quantised(element);
            } else {
                content.computed(element);
            }
            continue;
        }
        let scheme = match value.quantization {
            Some(Quantization::PerTensor { .. }) => QuantizationScheme::Tensor,
            Some(Quantization::PerChannel { .. }) => QuantizationScheme::Channel,
            Some(Quantization::PerGroup { group_size, .. }) => {
                QuantizationScheme::Groups(group_size)
            }
            Some(Quantization::PerToken { .. }) => QuantizationScheme::UnknownGrouping,
            None if is_quantised => QuantizationScheme::UnknownGrouping,
            None => QuantizationScheme::Plain,
        };
        let elements = value
            .dims
            .iter()
            .fold(1_u64, |product, dim| product.saturating_mul(*dim));
        content.weight(WeightStorage::new_quantised(element, scheme), elements);
    }
    Ok(content)
}

/// Returns the element type, and whether it is quantised.
fn element_of(datatype: Datatype) -> (&'static str, bool) {
    match datatype {
        Datatype::Fp32 | Datatype::Pfp32 => ("float32", false),
        Datatype::Fp16 => ("float16", false),
        Datatype::Bf16 => ("bfloat16", false),
        Datatype::Int32 => ("int32", false),
        Datatype::Quint8 => ("uint8", true),
        Datatype::Qint8 | Datatype::Qcint8 | Datatype::Qdint8 | Datatype::Qpint8 => ("int8", true),
        Datatype::Qint32 | Datatype::Qcint32 => ("int32", true),
        Datatype::Qcint4 | Datatype::Qbint4 => ("int4", true),
    }
}
