//! Completion of signatures from model files: all methods, one method, or one tensor, in the form
//! of a config.

use std::fmt::Write;

use serde_json::{Map, Value as Json};

use super::super::view::{DocumentView, VariantAt, method, method_steps};
use super::cursor::Cursor;
use super::item::{CompletionItem, CompletionKind, InsertText, escaped};
use super::slot::KeySlot;
use pkgtool_base::source::JsonPath;
use pkgtool_base::source::json::Step;
use pkgtool_model::{ModelInfo, declaration};

/// The usual method name for a file whose only graph has no name.
const DEFAULT_METHOD: &str = "forward";

/// Returns the keys that are possible in the object at `path`, with their values from the models.
pub(super) fn keys(slot: &KeySlot<'_>, path: &JsonPath) -> Vec<CompletionItem> {
    let view = slot.cursor.view;
    let Some(variant) = view.variant(path) else {
        return Vec::new();
    };
    let nested = variant.has_components();
    let Some((component, None, [])) = method_steps(path, nested) else {
        return Vec::new();
    };
    let from = |declared: Map<String, Json>| -> Vec<CompletionItem> {
        let declared = declared.into_iter();
        declared
            .map(|(name, value)| {
                let item = slot.item(&name, &escaped(&format_json(&value, 0)));
                item.detail("as in the model").rank(0)
            })
            .collect()
    };
    match component {
        None if nested => from(by_component(view, variant).unwrap_or_default()),
        component => from(of_file(view, variant, component).unwrap_or_default()),
    }
}

/// Returns the values that are possible at the cursor within `methods`.
pub(super) fn values(cursor: &Cursor<'_>) -> Vec<CompletionItem> {
    let view = cursor.view;
    let path = &cursor.place.path;
    let Some(variant) = view.variant(path) else {
        return Vec::new();
    };
    let nested = variant.has_components();
    let Some((component, name, rest)) = method_steps(path, nested) else {
        return Vec::new();
    };
    let declared = match (component, name) {
        (None, None) => declared(view, variant).map(Json::Object),
        (component, None) => of_file(view, variant, component).map(Json::Object),
        (component, Some(name)) => {
            signature(view, variant, component, name).and_then(|signature| match rest {
                [] => Some(signature),
                [Step::Key(side)] => signature.get(&**side).cloned(),
                _ => {
                    let (side, index) = tensor_at(cursor, nested)?;
                    signature.get(side)?.get(index).cloned()
                }
            })
        }
    };
    let Some(declared) = declared else {
        return Vec::new();
    };
    let span = cursor.place.token(cursor.offset);
    let insert = format!("{}{}", format_json(&declared, 0), cursor.comma());
    let label = match path.steps().last() {
        Some(Step::Key(key)) => format!("{key} of the model"),
        _ => declared.to_string(),
    };
    vec![
        CompletionItem::new(
            &label,
            CompletionKind::Value,
            InsertText::Plain(insert),
            span,
        )
        .rank(0),
    ]
}

/// Returns all methods of a variant as formatted JSON.
pub(super) fn all(view: &DocumentView<'_>, variant: VariantAt<'_>) -> Option<String> {
    Some(format_json(&Json::Object(declared(view, variant)?), 0))
}

fn declared(view: &DocumentView<'_>, variant: VariantAt<'_>) -> Option<Map<String, Json>> {
    if variant.has_components() {
        by_component(view, variant)
    } else {
        of_file(view, variant, None)
    }
}

fn by_component(view: &DocumentView<'_>, variant: VariantAt<'_>) -> Option<Map<String, Json>> {
    let components = variant.components().filter_map(|(name, _)| {
        let methods = of_file(view, variant, Some(name))?;
        Some((name.to_owned(), Json::Object(methods)))
    });
    let methods: Map<String, Json> = components.collect();
    (!methods.is_empty()).then_some(methods)
}

fn of_file(
    view: &DocumentView<'_>,
    variant: VariantAt<'_>,
    component: Option<&str>,
) -> Option<Map<String, Json>> {
    let facts = view.model(variant, component)?;
    let info = facts.model_info()?;
    let methods = if info.names_methods {
        declaration::methods(info).ok()?
    } else {
        let signature = declaration::signature(info.methods.first()?).ok()?;
        Map::from_iter([(DEFAULT_METHOD.to_owned(), signature)])
    };
    (!methods.is_empty()).then_some(methods)
}

fn signature(
    view: &DocumentView<'_>,
    variant: VariantAt<'_>,
    component: Option<&str>,
    name: &str,
) -> Option<Json> {
    let facts = view.model(variant, component)?;
    let info: &ModelInfo = facts.model_info()?;
    declaration::signature(method(info, name)?).ok()
}

/// Returns the tensor of a signature at the cursor, if there is one: the key and the index.
fn tensor_at(cursor: &Cursor<'_>, nested: bool) -> Option<(String, usize)> {
    let (_, _, rest) = method_steps(&cursor.place.path, nested)?;
    match rest {
        [Step::Key(side), Step::Index(index)] => Some((side.to_string(), *index)),
        _ => None,
    }
}

/// Formats JSON in the style of configs: a tensor on one line, indentation of two spaces per level.
fn format_json(value: &Json, level: usize) -> String {
    let indentation = "  ".repeat(level + 1);
    let end = "  ".repeat(level);
    let mut text = String::new();
    match value {
        Json::Object(members) if members.contains_key("dtype") => {
            let members = members.iter().map(|(key, value)| {
                format!(
                    "{}: {}",
                    Json::from(key.as_str()),
                    format_on_one_line(value)
                )
            });
            let members: Vec<String> = members.collect();
            let _ = write!(text, "{{ {} }}", members.join(", "));
        }
        Json::Object(members) if !members.is_empty() => {
            let members = members.iter().map(|(key, value)| {
                let value = format_json(value, level + 1);
                format!("{indentation}{}: {value}", Json::from(key.as_str()))
            });
            let members: Vec<String> = members.collect();
            let _ = write!(text, "{{\n{}\n{end}}}", members.join(",\n"));
        }
        Json::Array(elements) if !elements.is_empty() => {
            let elements = elements
                .iter()
                .map(|one| format!("{indentation}{}", format_json(one, level + 1)));
            let elements: Vec<String> = elements.collect();
            let _ = write!(text, "[\n{}\n{end}]", elements.join(",\n"));
        }
        other => text = other.to_string(),
    }
    text
}

/// Formats a value on one line, such as `[1, -1]`.
fn format_on_one_line(value: &Json) -> String {
    match value {
        Json::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(format_on_one_line).collect();
            format!("[{}]", elements.join(", "))
        }
        other => other.to_string(),
    }
}
