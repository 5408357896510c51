//! Hover texts: findings with their rules, the schema's description of a key, and facts about model
//! files.

use std::fmt::Write;

use serde_json::{Value, json};

use super::place::{SyntaxElement, TreePosition};
use super::view::{DocumentView, VariantAt, method, method_steps};
use crate::validate::{self, FileFacts, FileState, ModelFacts};
use pkgtool_base::diagnostic::{Diagnostic, RuleMeta};
use pkgtool_base::package::license;
use pkgtool_base::source::json::{Node, Step};
use pkgtool_base::source::{JsonPath, Span};
use pkgtool_model::{Method, TensorInfo};

/// Maximum number of methods that are listed.
const MAX_METHODS: usize = 20;
/// Maximum size of a hover text, in bytes.
const MAX_TEXT_BYTES: usize = 20_000;

/// Returns the hover at `offset`, or `null` at a place without one.
pub(super) fn hover(view: &DocumentView<'_>, offset: usize) -> Value {
    let place = TreePosition::at(view.text.as_str(), &view.tree, offset);
    let (span, key) = match place.part {
        SyntaxElement::Key(member) => (member.key_span, Some(member)),
        SyntaxElement::Value(node) if !node.span.is_empty() => (node.span, None),
        _ => return Value::Null,
    };
    // On a bracket, the hover would highlight the whole object or array.
    let is_bracket = matches!(place.part, SyntaxElement::Value(node) if node.is_object() || !node.elements().is_empty());
    let value = key.map(|member| member.value.span);
    let spans = [Some(span), value];
    let mut parts: Vec<String> = view
        .findings
        .iter()
        .filter(|finding| spans.contains(&Some(finding.span)))
        .map(about_finding)
        .collect();
    if key.is_some() || parts.is_empty() {
        parts.extend(about_key(view, &place));
    }
    parts.extend(about_value(view, &place));
    if parts.is_empty() {
        return Value::Null;
    }
    let mut text = parts.join("\n\n---\n\n");
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.push('…');
    }
    let kind = if view.client.markdown {
        "markdown"
    } else {
        "plaintext"
    };
    let marked = if is_bracket {
        Span::new(offset, offset)
    } else {
        span
    };
    json!({ "contents": { "kind": kind, "value": text }, "range": view.text.range(marked) })
}

fn about_finding(finding: &Diagnostic) -> String {
    let RuleMeta { code, name, .. } = finding.rule;
    let severity = finding.severity.name();
    let mut text = format!("**{severity} {code} {name}**: {}", finding.message);
    if let Some(help) = &finding.help {
        let _ = write!(text, "\n\nhelp: {help}");
    }
    let _ = write!(text, "\n\n{}", explanation(finding.rule));
    text
}

/// Returns a rule's explanation. Its headings are bold text, since hover windows are small.
fn explanation(rule: &RuleMeta) -> String {
    let text = rule.explanation_text();
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(heading) => format!("**{heading}**"),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the schema's description of the member, and the rules that check it.
fn about_key(view: &DocumentView<'_>, place: &TreePosition<'_>) -> Option<String> {
    let shape = view.shape(&place.path)?;
    let name = match place.path.steps().last() {
        Some(Step::Key(key)) => &**key,
        _ => return shape.description().map(str::to_owned),
    };
    let mut text = match shape.description() {
        Some(description) => format!("`{name}`: {description}"),
        None if shape.words().is_empty() => return None,
        None => format!("`{name}`"),
    };
    let words = shape.words();
    if !words.is_empty() {
        let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        let _ = write!(text, "\n\nOne of {}.", words.join(", "));
    }
    if matches!(place.part, SyntaxElement::Key(_)) {
        let holder = place
            .path
            .parent()
            .and_then(|(parent, _)| view.shape(&parent));
        if holder.is_some_and(|holder| holder.requires(name)) {
            text.push_str("\n\nRequired.");
        }
        for rule in rules_about(name) {
            let _ = write!(text, "\n- {} `{}`: {}", rule.code, rule.name, rule.summary);
        }
    }
    Some(text)
}

/// Returns the rules that have the key in their names or mention it in their checks.
fn rules_about(key: &str) -> impl Iterator<Item = &'static RuleMeta> + '_ {
    let word = format!("`{key}`");
    validate::rule_metas().into_iter().filter(move |rule| {
        let text = rule.explanation_text();
        let checks = text.split("\n# ").next().unwrap_or_default();
        rule.name.split('-').any(|part| part == key) || checks.contains(&word)
    })
}

fn about_value(view: &DocumentView<'_>, place: &TreePosition<'_>) -> Option<String> {
    let path = &place.path;
    let value = match place.part {
        SyntaxElement::Key(member) => &member.value,
        SyntaxElement::Value(node) => node,
        _ => return None,
    };
    if view.is_list() {
        return None;
    }
    let keys: Vec<&str> = path.steps().iter().filter_map(key_of).collect();
    match keys[..] {
        ["license"] => about_license(value.as_str()?),
        ["tokenizer" | "tokenizer_config"] => about_file(view, value.as_str()?, false),
        ["variants", "precision"] => Some(about_precision(view, value.as_str()?)),
        ["variants", "file"] | ["variants", "components", _] => {
            about_file(view, value.as_str()?, true)
        }
        ["variants", "size_bytes"] => about_size(view, view.variant(path)?),
        ["variants", "methods", ..] => about_methods(view, path),
        _ => None,
    }
}

fn key_of(step: &Step) -> Option<&str> {
    match step {
        Step::Key(key) => Some(key),
        Step::Index(_) => None,
    }
}

fn about_license(license: &str) -> Option<String> {
    let name = license::full_name(license)?;
    Some(format!("`{license}`: {name}"))
}

fn about_precision(view: &DocumentView<'_>, token: &str) -> String {
    let (list, file) = view.session.precisions(view.found);
    let place = match file {
        Some(path) => format!("`{}`", path.display()),
        None => "the built-in precision list".to_owned(),
    };
    match list.is_quantized(token) {
        Some(true) => format!("`{token}` is quantized: it is listed under `quantized` in {place}."),
        Some(false) => {
            format!("`{token}` is not quantized: it is listed under `non_quantized` in {place}.")
        }
        None => format!("`{token}` is not in {place}."),
    }
}

fn about_size(view: &DocumentView<'_>, variant: VariantAt<'_>) -> Option<String> {
    let size = view.size_on_disk(variant)?;
    Some(format!("On disk: {size} bytes."))
}

fn about_file(view: &DocumentView<'_>, reference: &str, is_model: bool) -> Option<String> {
    if reference.is_empty() {
        return None;
    }
    let facts = match view.resolve(reference) {
        Ok(path) => view.session.file(&path, is_model),
        Err(error) => return Some(format!("`{reference}` {error}.")),
    };
    let path = facts.path.display();
    Some(match &facts.state {
        FileState::Missing => format!("`{path}` does not exist."),
        FileState::Dangling(target) => {
            format!(
                "`{path}` is a link to `{}`, which does not exist.",
                target.display()
            )
        }
        FileState::Unreadable(reason) => format!("`{path}` cannot be read: {reason}."),
        FileState::Empty => format!("`{path}` is empty."),
        FileState::LfsPointer(pointer) => {
            let size = pointer.size;
            format!("`{path}` is a Git LFS pointer; the file itself has {size} bytes.")
        }
        FileState::Directory(size) | FileState::File(size) => {
            format!(
                "`{reference}`: {}{size} bytes{}",
                format_of(&facts),
                methods_of(&facts)
            )
        }
    })
}

fn format_of(facts: &FileFacts) -> String {
    match &facts.model {
        Some(ModelFacts::Read(info)) => format!("{} ({}), ", info.format, info.format_version),
        Some(ModelFacts::Broken(error)) => format!("cannot be read: {error}; "),
        Some(ModelFacts::UnknownFormat) | None => String::new(),
    }
}

fn methods_of(facts: &FileFacts) -> String {
    let mut text = String::new();
    let Some(info) = facts.model_info() else {
        return text;
    };
    let callable = || info.methods.iter().filter(|method| !method.constant);
    for method in callable().take(MAX_METHODS) {
        let _ = write!(text, "\n- `{}` {method}", method.name);
        let mut delegates: Vec<&str> = method.delegates.iter().map(|one| one.id.as_str()).collect();
        delegates.dedup();
        if !delegates.is_empty() {
            let _ = write!(text, ", delegated to {}", delegates.join(", "));
        }
    }
    let more = callable().count().saturating_sub(MAX_METHODS);
    if more > 0 {
        let _ = write!(text, "\n- {more} more");
    }
    text
}

/// Compares the declared methods with those of the model file.
fn about_methods(view: &DocumentView<'_>, path: &JsonPath) -> Option<String> {
    let variant = view.variant(path)?;
    let nested = variant.has_components();
    let (component, name, rest) = method_steps(path, nested)?;
    if nested && component.is_none() {
        return None;
    }
    let facts = view.model(variant, component)?;
    let info = facts.model_info()?;
    let file = facts.path.file_name()?.to_string_lossy();
    let Some(name) = name else {
        return Some(format!("`{file}`:{}", methods_of(&facts)));
    };
    let Some(method) = method(info, name) else {
        let names = info.methods.iter().filter(|method| !method.constant);
        let names: Vec<String> = names.map(|method| format!("`{}`", method.name)).collect();
        return Some(format!(
            "`{file}` has no method `{name}`; it has {}.",
            names.join(", ")
        ));
    };
    let declared = variant.node.get("methods")?;
    let declared = component.map_or(Some(declared), |component| declared.get(component))?;
    let declared = declared.get(name)?;
    let (side, index) = match rest {
        [] => (None, None),
        [Step::Key(side)] => (Some(&**side), None),
        [Step::Key(side), Step::Index(index), ..] => (Some(&**side), Some(*index)),
        _ => return None,
    };
    Some(table(&file, declared, method, side, index))
}

fn table(
    file: &str,
    declared: &Node,
    method: &Method,
    side: Option<&str>,
    index: Option<usize>,
) -> String {
    let mut text = format!("| | declared | `{file}` |\n|---|---|---|");
    for (key, values) in [("inputs", &method.inputs), ("outputs", &method.outputs)] {
        if side.is_some_and(|side| side != key) {
            continue;
        }
        let theirs: Vec<&TensorInfo> = values.iter().filter_map(|value| value.tensor()).collect();
        let ours = declared.get(key).map_or(&[][..], Node::elements);
        for at in 0..ours.len().max(theirs.len()) {
            if index.is_some_and(|index| index != at) {
                continue;
            }
            let ours = ours.get(at).map_or_else(|| "—".to_owned(), declared_tensor);
            let theirs = theirs
                .get(at)
                .map_or_else(|| "—".to_owned(), ToString::to_string);
            let _ = write!(text, "\n| {key} {at} | {ours} | {theirs} |");
        }
    }
    text
}

/// Formats a declared tensor as a model's tensors are shown: `float32[1, -1]`.
fn declared_tensor(node: &Node) -> String {
    let dtype = node.get("dtype").and_then(Node::as_str).unwrap_or("?");
    let shape = node.get("shape").map_or(&[][..], Node::elements).iter();
    let shape = shape.map(|size| {
        size.as_i64()
            .map_or_else(|| "?".to_owned(), |size| size.to_string())
    });
    format!("{dtype}[{}]", shape.collect::<Vec<_>>().join(", "))
}
