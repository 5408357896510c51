//! What a graph of `XnnpackBackend` holds.

use super::super::content::{Content, Scheme, Stored};
use super::super::error::Error;
use super::super::storage::ByteRange;
use super::graph::{Datatype, Graph, Quantization};
use super::payload::Parts;
use crate::source::{Pages, ReadAt};

/// Reads that finding the graph may take.
const BUDGET: u64 = 1000;

/// What stands in a delegate's payload.
pub(in super::super) fn content(source: &dyn ReadAt, payload: ByteRange) -> Result<Content, Error> {
    let graph = Graph::read(source, payload)?;
    let mut content = Content::default();
    let pages = Pages::with_budget(source, BUDGET);
    let parts = Parts::find(&pages, payload)?;
    content.version(source, parts.map(|parts| parts.graph))?;
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
            Some(Quantization::PerTensor { .. }) => Scheme::Tensor,
            Some(Quantization::PerChannel { .. }) => Scheme::Channel,
            Some(Quantization::PerGroup { group_size, .. }) => Scheme::Groups(group_size),
            Some(Quantization::PerToken { .. }) => Scheme::Steps,
            None if is_quantised => Scheme::Steps,
            None => Scheme::Plain,
        };
        let elements = value
            .dims
            .iter()
            .fold(1_u64, |product, dim| product.saturating_mul(*dim));
        content.weight(Stored::steps(element, scheme), elements);
    }
    Ok(content)
}

/// Type of the elements, and whether they are steps.
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
