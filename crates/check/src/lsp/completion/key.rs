//! Completion of object keys: the keys of the schema that are missing, required keys first.

use super::super::place::SyntaxElement;
use super::super::shape::Subschema;
use super::cursor::Cursor;
use super::item::{CompletionItem, escaped};
use super::slot::{KeySlot, comma_before};
use super::{model, value};
use pkgtool_base::package::config::SCHEMA_ID;
use pkgtool_base::source::JsonPath;
use pkgtool_base::source::json::Member;

/// Returns the keys that are possible at the cursor.
pub(super) fn keys(cursor: &Cursor<'_>) -> Vec<CompletionItem> {
    let Some(holder) = cursor.place.container else {
        return Vec::new();
    };
    let (object, own) = match cursor.place.part {
        SyntaxElement::Key(member) => (
            cursor.place.path.parent().map(|(path, _)| path),
            Some(member),
        ),
        _ => (Some(cursor.place.path.clone()), None),
    };
    let Some(object) = object else {
        return Vec::new();
    };
    let others: Vec<&Member> = holder
        .members()
        .iter()
        .filter(|member| own.is_none_or(|own| own.key_span != member.key_span))
        .collect();
    let is_new = |key: &str| others.iter().all(|member| member.key != key);
    let slot = KeySlot {
        cursor,
        own,
        before: comma_before(cursor, &others),
    };
    let mut items = model::keys(&slot, &object);
    items.retain(|item| is_new(&item.label));
    let Some(shape) = cursor.view.shape(&object) else {
        return items;
    };
    let has = |key: &str| !is_new(key);
    for (key, member) in shape.members() {
        // A variant has either `file` or `components`.
        let is_other = key == "file" && has("components") || key == "components" && has("file");
        if !is_new(key) || is_other {
            continue;
        }
        let is_missing = shape.requires(key) || matches!(key, "file" | "methods");
        let path = object.key(key);
        let item = slot.item(key, &value_of(cursor, &path, key, member));
        let kind = member.types().join(" or ");
        let detail = if shape.requires(key) {
            "required".to_owned()
        } else {
            kind
        };
        items.push(
            item.detail(detail)
                .documentation(member.description())
                .rank(if is_missing { 1 } else { 4 }),
        );
    }
    items
}

/// Returns the value that is inserted after a key, as a snippet.
fn value_of(cursor: &Cursor<'_>, path: &JsonPath, key: &str, shape: Subschema) -> String {
    if path.steps().len() == 1 && key == "$schema" && !cursor.view.is_list() {
        return format!("\"{}\"", escaped(SCHEMA_ID));
    }
    let variant = cursor.view.variant(path);
    if key == "size_bytes"
        && let Some(size) = variant.and_then(|variant| cursor.view.size_on_disk(variant))
    {
        return size.to_string();
    }
    if key == "methods"
        && let Some(methods) = variant.and_then(|variant| model::all(cursor.view, variant))
    {
        return escaped(&methods);
    }
    if let Some(only) = value::determined_value(cursor.view, path) {
        return escaped(&serde_json::Value::from(only).to_string());
    }
    match key {
        "variants" => "[\n  {\n    \"precision\": \"$1\",\n    \"file\": \"$2\"\n  }\n]".to_owned(),
        "shape" => "[$1]".to_owned(),
        "inputs" | "outputs" => "[\n  { \"shape\": [$1], \"dtype\": \"$2\" }\n]".to_owned(),
        _ => of_type(shape),
    }
}

fn of_type(shape: Subschema) -> String {
    let types = shape.types();
    let text = match types.first() {
        Some(&"array") => "[\"$1\"]",
        Some(&"object") => "{\n  $1\n}",
        Some(&"integer" | &"number") => "$1",
        _ => "\"$1\"",
    };
    text.to_owned()
}
