//! A model's description as text for people.

use std::collections::BTreeMap;

use super::{ExtraFacts, payloads, portable};
use crate::cli::output::times;
use crate::cli::report;
use pkgtool_base::diagnostic::TextTable;
use pkgtool_base::source::text::defuse_line;
use pkgtool_model::executorch::body::KnownDefect;
use pkgtool_model::{Dim, Method, ModelInfo, ModelValue, ValueKind};

/// Maximum number of a constant's elements that are shown.
const MAX_ELEMENTS: usize = 16;
/// Maximum number of names of a data file that are listed.
const MAX_NAMED_ENTRIES: usize = 24;
/// Maximum number of segments that are listed.
const MAX_SEGMENTS: usize = 12;

/// Writes the text with a final newline.
pub(super) fn render(
    text: &mut String,
    path: &str,
    info: &ModelInfo,
    file_size: u64,
    beside: &ExtraFacts,
) {
    head(text, path, info, file_size);
    let (constants, methods): (Vec<_>, Vec<_>) = info.methods.iter().partition(|m| m.constant);
    for method in methods {
        write_method(text, info, method, beside);
        write_wrong(text, beside.wrong(method));
    }
    if !constants.is_empty() {
        text.push_str("\nconstant methods\n");
        rows(
            text,
            constants.iter().map(|method| {
                let values: Vec<String> = method.outputs.iter().map(value_text).collect();
                (method.name.clone(), values.join(", "))
            }),
        );
    }
    named(text, info);
    segments(text, info);
}

fn head(text: &mut String, path: &str, info: &ModelInfo, file_size: u64) {
    line(
        text,
        &format!("{path}: {} ({})", info.format, info.format_version),
    );
    let mut facts = vec![("size".to_owned(), bytes(file_size))];
    if let Some(producer) = &info.producer {
        facts.push(("producer".to_owned(), producer.clone()));
    }
    facts.push(("weights".to_owned(), bytes(info.weight_bytes)));
    for external in &info.external {
        let place = external.location.as_deref().unwrap_or("a .ptd file");
        let needs = external.needs_bytes;
        let needs = needs.map_or(String::new(), |needs| format!(", {}", bytes(needs)));
        let tensors = match external.tensors {
            0 => "compiled graphs".to_owned(),
            tensors => counted(tensors, "tensor"),
        };
        facts.push((
            "external".to_owned(),
            format!("{tensors} in {place}{needs}"),
        ));
    }
    facts.extend(info.metadata.iter().cloned());
    rows(text, facts.into_iter());
}

fn write_method(text: &mut String, info: &ModelInfo, method: &Method, beside: &ExtraFacts) {
    text.push('\n');
    line(text, &format!("method {}", method.name));
    for (noun, values) in [("input", &method.inputs), ("output", &method.outputs)] {
        for (i, value) in values.iter().enumerate() {
            let name = value
                .name
                .as_ref()
                .map_or(String::new(), |name| format!("{name}: "));
            line(text, &format!("  {noun} {i}  {name}{}", value_text(value)));
        }
    }
    if !method.delegates.is_empty() {
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for delegate in &method.delegates {
            let sum = sums.entry(&delegate.id).or_default();
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(delegate.payload_bytes.unwrap_or(0));
        }
        for (id, (count, size)) in sums {
            let parts = counted(count, "partition");
            line(text, &format!("  delegate  {id}: {parts}, {}", bytes(size)));
            for (word, told) in payloads::lines(beside.payloads(method), id) {
                line(text, &format!("    {word}  {told}"));
            }
        }
    }
    if !method.operators.is_empty() {
        let calls: Vec<String> = method.operators.iter().map(times).collect();
        line(text, &format!("  operators  {}", calls.join(", ")));
    }
    match portable::missing(&beside.path, info, method) {
        Some((_, why)) if why.is_empty() && info.format == "onnx" => {
            line(text, "  portable  yes, run by tract");
        }
        Some((_, why)) if why.is_empty() => line(text, "  portable  yes, lowered to tract"),
        Some((missing, why)) if info.format == "onnx" => {
            let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
            let names = names.join(", ");
            let of = "ONNX Runtime may run them, or the provider of a device";
            line(text, &format!("  portable  no, {names}: {why}; {of}"));
        }
        Some((_, why)) => line(text, &format!("  portable  no: {why}")),
        None => {}
    }
}

/// Writes the operators that ExecuTorch's runtime computes wrongly.
fn write_wrong(text: &mut String, wrong: &[KnownDefect]) {
    for KnownDefect { operator, what, .. } in wrong {
        line(text, &format!("  wrong in ExecuTorch  {operator} {what}"));
    }
}

/// Writes the named entries of a data file.
fn named(text: &mut String, info: &ModelInfo) {
    if info.named.is_empty() {
        return;
    }
    text.push_str("\ndata\n");
    let shown = info.named.iter().take(MAX_NAMED_ENTRIES).map(|named| {
        let tensor = named.tensor.as_ref();
        let kind = tensor.map_or("bytes".to_owned(), ToString::to_string);
        (named.name.clone(), kind)
    });
    rows(text, shown);
    if info.named.len() > MAX_NAMED_ENTRIES {
        let more = info.named.len() - MAX_NAMED_ENTRIES;
        line(text, &format!("  … and {more} more"));
    }
}

fn segments(text: &mut String, info: &ModelInfo) {
    if info.segments.is_empty() {
        return;
    }
    text.push_str("\nsegments\n");
    let shown = info.segments.iter().take(MAX_SEGMENTS);
    rows(
        text,
        shown.map(|s| (s.name.clone(), format!("{} at {}", bytes(s.size), s.offset))),
    );
    if info.segments.len() > MAX_SEGMENTS {
        line(
            text,
            &format!("  … and {} more", info.segments.len() - MAX_SEGMENTS),
        );
    }
}

fn value_text(value: &ModelValue) -> String {
    match &value.kind {
        ValueKind::Tensor { info, data: None } => {
            let uncertain = info
                .dims
                .iter()
                .flatten()
                .any(|dim| matches!(dim, Dim::Maybe { .. }));
            let doubt = if uncertain {
                " (dynamic, but the file does not state in which dimensions)"
            } else {
                ""
            };
            format!("{info}{doubt}")
        }
        ValueKind::Tensor {
            info,
            data: Some(data),
        } => {
            let mut elements: Vec<String> = data
                .iter()
                .take(MAX_ELEMENTS)
                .map(ToString::to_string)
                .collect();
            if data.len() > MAX_ELEMENTS {
                elements.push("…".to_owned());
            }
            format!("{info} = [{}]", elements.join(", "))
        }
        ValueKind::Int(number) => format!("int {number}"),
        ValueKind::Double(number) => format!("double {number}"),
        ValueKind::Bool(truth) => format!("bool {truth}"),
        ValueKind::String(content) => format!("string {content:?}"),
        ValueKind::ClassScores { name, count } => format!("{name} of {count} labels"),
        ValueKind::None | ValueKind::Other(_) | ValueKind::ClassLabel(_) => {
            value.kind.name().to_owned()
        }
    }
}

/// Writes two indented columns.
fn rows(text: &mut String, rows: impl Iterator<Item = (String, String)>) {
    let mut table = TextTable::of_text(2).indented();
    for (key, value) in rows {
        table.row([defuse_line(&key), defuse_line(&value)]);
    }
    text.push_str(&table.to_string());
}

/// Writes one line. Names from the file cannot add line breaks or control characters.
fn line(text: &mut String, content: &str) {
    text.push_str(&defuse_line(content));
    text.push('\n');
}

fn bytes(size: u64) -> String {
    match report::file_size(size) {
        short if size >= 1000 => format!("{short} ({size} bytes)"),
        bytes => bytes,
    }
}

fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
