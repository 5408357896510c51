//! Summarises the payload of a QNN delegate: its wrapper, and the description in a context binary.

use super::super::content::PayloadSummary;
use super::super::storage::ByteRange;
use super::context::QnnContext;
use super::wrapper::{self, WrappedContent};
use crate::FormatError;
use pkgtool_base::source::{Pages, ReadAt};

/// Maximum number of reads for the wrapper.
const MAX_WRAPPER_READS: u64 = 1000;

/// Returns the contents of a delegate's payload.
pub(in super::super) fn content(
    source: &dyn ReadAt,
    payload: ByteRange,
) -> Result<PayloadSummary, FormatError> {
    let wrapped = wrapper::find(&Pages::with_budget(source, MAX_WRAPPER_READS), payload)?;
    let mut content = PayloadSummary {
        is_opaque: true,
        ..PayloadSummary::default()
    };
    let size = wrapped.range.size;
    let header = match wrapped.header_bytes {
        0 => "none".to_owned(),
        bytes => format!("{bytes} bytes"),
    };
    content.facts.push(("wrapper", header));
    let unread = match wrapped.inside {
        WrappedContent::Context => return described(content, source, wrapped.range),
        WrappedContent::Container => "deep learning container (DLC), to be compiled on the device",
        WrappedContent::Graph => "ExecuTorch graph, to be compiled on the device",
        WrappedContent::Other => "of an unknown format",
    };
    content
        .facts
        .push(("binary", format!("{unread}, {size} bytes; not read")));
    Ok(content)
}

/// Adds the description of a context binary. With several graphs, the payload does not record the
/// called one.
fn described(
    mut content: PayloadSummary,
    source: &dyn ReadAt,
    range: ByteRange,
) -> Result<PayloadSummary, FormatError> {
    let found = QnnContext::read(source, range)?;
    let size = range.size;
    let facts = &mut content.facts;
    facts.push(("binary", format!("QNN context, {size} bytes")));
    facts.push(("backend", found.backend));
    facts.extend(found.chip.map(|chip| ("chip", chip)));
    facts.extend(found.build.map(|build| ("build", build)));
    let mut graphs = found.graphs;
    if graphs.len() > 1 {
        content.functions = graphs.into_iter().map(|graph| graph.name).collect();
    } else if let Some(graph) = graphs.pop() {
        facts.push(("graph", graph.name.clone()));
        content.function = Some(graph.name);
        content.inputs = graph.inputs;
        content.outputs = graph.outputs;
    }
    Ok(content)
}
