//! Contents of the payloads of an ExecuTorch program's delegates, by method. A payload is the part
//! of a model that is compiled for one backend.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::cli::output::times;
use pkgtool_base::package::Backend;
use pkgtool_base::source::ReadAt;
use pkgtool_model::executorch::body::ProgramBody;
use pkgtool_model::executorch::{Payload, PayloadSummary, Port, QuantizationScheme, contents};
use pkgtool_model::{Dim, TensorInfo};

/// Maximum number of operators, states and unreadable payloads (each) shown in the text.
const MAX_TEXT_ENTRIES: usize = 24;
/// Maximum number of entries (each) listed for one payload in JSON.
const MAX_JSON_ENTRIES: usize = 4096;

/// The payloads of each method by name, one entry per delegate.
pub(super) type Payloads = BTreeMap<String, Vec<Option<Payload>>>;

/// Reads the payloads of a program.
pub(super) fn read(source: &dyn ReadAt, body: &ProgramBody) -> Payloads {
    let methods = body.methods.iter();
    methods
        .map(|method| (method.name.clone(), contents(source, body, method)))
        .collect()
}

/// Returns the combined contents of a method's payloads for one backend, as pairs of a label and a
/// text.
pub(super) fn lines(payloads: &[Option<Payload>], id: &str) -> Vec<(&'static str, String)> {
    let backend = Backend::of_delegate(id);
    let payloads = payloads.iter().flatten();
    let mut broken = Vec::new();
    let mut all: Option<PayloadSummary> = None;
    for payload in payloads.filter(|payload| Some(payload.backend) == backend) {
        match (&payload.content, &mut all) {
            (Ok(content), Some(all)) => all.add(content),
            (Ok(content), None) => all = Some(content.clone()),
            (Err(error), _) => broken.push(("unreadable", error.to_string())),
        }
    }
    broken.truncate(MAX_TEXT_ENTRIES);
    let mut lines = all.as_ref().map_or(Vec::new(), content_lines);
    lines.extend(broken);
    lines
}

fn content_lines(content: &PayloadSummary) -> Vec<(&'static str, String)> {
    let facts = content.facts.iter();
    let mut facts: Vec<String> = facts.map(|(key, value)| format!("{key} {value}")).collect();
    if !content.functions.is_empty() {
        let functions = shown(content.functions.iter().map(Clone::clone));
        facts.push(match &content.function {
            Some(called) => format!("function {called} of {functions}"),
            None => format!("functions {functions}"),
        });
    }
    let mut operators: Vec<(&String, u64)> =
        content.operators.iter().map(|(k, n)| (k, *n)).collect();
    operators.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let weights = content.weights.iter().map(|(stored, count)| {
        let tensors = times((&stored.to_string(), &count.tensors));
        format!("{tensors} ({} elements)", count.elements)
    });
    let computes = content.computation_types.iter();
    let lines = [
        ("says", facts.join(", ")),
        (
            "takes",
            shown(content.inputs.iter().map(ToString::to_string)),
        ),
        (
            "gives",
            shown(content.outputs.iter().map(ToString::to_string)),
        ),
        ("computes", shown(computes.map(times))),
        ("weights", shown(weights)),
        (
            "states",
            shown(content.states.iter().map(ToString::to_string)),
        ),
        (
            "operators",
            shown(operators.iter().map(|(name, count)| times((name, count)))),
        ),
    ];
    let lines = lines.into_iter().filter(|(_, text)| !text.is_empty());
    lines.collect()
}

/// Joins the first entries in one line, followed by the number of further entries.
fn shown(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(MAX_TEXT_ENTRIES);
    let mut items: Vec<String> = items.take(MAX_TEXT_ENTRIES).collect();
    if more > 0 {
        items.push(format!("… and {more} more"));
    }
    items.join(", ")
}

/// Renders a payload as JSON, or null if its format is not supported.
pub(super) fn document(payload: Option<&Payload>) -> Json {
    let Some(payload) = payload else {
        return Json::Null;
    };
    let backend = payload.backend.name();
    let content = match &payload.content {
        Ok(content) => content,
        Err(error) => {
            let text = error.to_string();
            return json!({ "backend": backend, "error": text, "offset": error.offset() });
        }
    };
    let facts = content.facts.iter();
    let facts: Map<String, Json> = facts
        .map(|(key, value)| (key.replace(' ', "_"), json!(value)))
        .collect();
    let weights = content.weights.iter().map(|(stored, count)| {
        let group = match stored.scheme {
            QuantizationScheme::Groups(size) => Some(size),
            _ => None,
        };
        json!({
            "dtype": stored.element, "bits": stored.bits, "scheme": stored.scheme.name(),
            "group_size": group, "tensors": count.tensors, "elements": count.elements,
        })
    });
    let states = content.states.iter().take(MAX_JSON_ENTRIES).map(|state| {
        let shape: Vec<i64> = state.dims.iter().map(Dim::config_size).collect();
        json!({ "name": state.name, "dtype": state.element, "shape": shape })
    });
    let ports =
        |ports: &[Port]| -> Vec<Json> { ports.iter().take(MAX_JSON_ENTRIES).map(port).collect() };
    let operators = content.operators.iter().take(MAX_JSON_ENTRIES);
    let operators: Map<String, Json> = operators.map(|(k, n)| (k.clone(), json!(n))).collect();
    let left = |count: usize| count.saturating_sub(MAX_JSON_ENTRIES);
    let left_out = left(content.operators.len())
        + left(content.states.len())
        + left(content.inputs.len())
        + left(content.outputs.len());
    let mut document = json!({
        "backend": backend,
        "facts": facts,
        "function": content.function,
        "functions": content.functions.iter().take(MAX_JSON_ENTRIES).collect::<Vec<_>>(),
        "computes": content.computation_types,
        "weights": weights.collect::<Vec<_>>(),
        "states": states.collect::<Vec<_>>(),
        "inputs": ports(&content.inputs),
        "outputs": ports(&content.outputs),
        "operators": operators,
    });
    if left_out > 0 {
        document["left_out"] = json!(left_out);
    }
    document
}

/// Renders a named input or output of a payload. Its dtype and shape are null if the payload does
/// not state them.
fn port(port: &Port) -> Json {
    let tensor = port.tensor.as_ref();
    json!({
        "name": port.name,
        "dtype": tensor.map(|tensor| tensor.element.name()),
        "shape": tensor.and_then(TensorInfo::config_shape),
    })
}
