//! What a payload of `QnnBackend` holds: how it is wrapped, and what a context binary says of itself.

use super::super::content::Content;
use super::super::error::Error;
use super::super::storage::ByteRange;
use super::context::Context;
use super::wrapper::{self, Inside};
use crate::source::{Pages, ReadAt};

/// Reads that a look at the wrapper may take.
const BUDGET: u64 = 1000;

/// What stands in a delegate's payload.
pub(in super::super) fn content(source: &dyn ReadAt, payload: ByteRange) -> Result<Content, Error> {
    let wrapped = wrapper::find(&Pages::with_budget(source, BUDGET), payload)?;
    let mut content = Content {
        is_closed: true,
        ..Content::default()
    };
    let size = wrapped.range.size;
    let header = match wrapped.header {
        0 => "none".to_owned(),
        bytes => format!("{bytes} bytes"),
    };
    content.facts.push(("wrapper", header));
    let unread = match wrapped.inside {
        Inside::Context => return described(content, source, wrapped.range),
        Inside::Container => "deep learning container (DLC), to be compiled on the device",
        Inside::Graph => "graph of ExecuTorch's, to be compiled on the device",
        Inside::Other => "of a form that is not known here",
    };
    content
        .facts
        .push(("binary", format!("{unread}, {size} bytes; not read")));
    Ok(content)
}

/// Adds what a context binary says of itself. Which of several graphs is called, a payload does not say.
fn described(
    mut content: Content,
    source: &dyn ReadAt,
    range: ByteRange,
) -> Result<Content, Error> {
    let found = Context::read(source, range)?;
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
