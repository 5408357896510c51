//! Completion of values: words of the schema, precision tokens, licences, sizes, files, a complete
//! config.

use super::super::view::DocumentView;
use super::cursor::Cursor;
use super::item::{CompletionItem, CompletionKind, InsertText, escaped};
use super::{file, model};
use pkgtool_base::package::config::SCHEMA_ID;
use pkgtool_base::package::{Backend, license, naming};
use pkgtool_base::source::JsonPath;
use pkgtool_base::source::json::{Node, Step};

/// Returns the values that are possible at the cursor.
pub(super) fn values(cursor: &Cursor<'_>) -> Vec<CompletionItem> {
    let view = cursor.view;
    let path = &cursor.place.path;
    let keys: Vec<&str> = path.steps().iter().filter_map(key_of).collect();
    if view.is_list() {
        return Vec::new();
    }
    match keys[..] {
        [] if path.steps().is_empty() => vec![config_template(cursor)],
        ["$schema"] => vec![cursor.text(SCHEMA_ID).rank(0)],
        ["license"] => licenses(cursor),
        ["backend"] => backends(cursor),
        ["model" | "family" | "size"] => determined_value(view, path)
            .map(|word| cursor.text(&word))
            .into_iter()
            .collect(),
        ["tokenizer" | "tokenizer_config"] => file::files(cursor, false),
        ["variants", "file"] | ["variants", "components", _] => file::files(cursor, true),
        ["variants", "precision"] => precisions(cursor),
        ["variants", "size_bytes"] => sizes(cursor),
        ["variants", "methods", .., "shape"] => Vec::new(),
        ["variants", "methods", .., "dtype"] => words(cursor),
        ["variants", "methods", ..] => model::values(cursor),
        _ => words(cursor),
    }
}

/// Returns the only value that fits at `path`, if the files around the config determine it.
pub(super) fn determined_value(view: &DocumentView<'_>, path: &JsonPath) -> Option<String> {
    let [Step::Key(key)] = path.steps() else {
        return None;
    };
    let directory = &view.directory;
    let name = directory.file_name()?.to_str()?;
    let backend = Backend::from_name(name);
    let above = directory
        .parent()
        .and_then(|above| above.file_name()?.to_str());
    match &**key {
        "backend" => Some(backend?.name().to_owned()),
        "model" => {
            backend?;
            let token = above?.to_lowercase().replace(['-', '.'], "_");
            let is_token = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            (!token.is_empty() && token.chars().all(is_token)).then_some(token)
        }
        "family" => Some(view.tree.root.get("model")?.as_str()?.to_owned()),
        _ => None,
    }
}

fn key_of(step: &Step) -> Option<&str> {
    match step {
        Step::Key(key) => Some(key),
        Step::Index(_) => None,
    }
}

fn words(cursor: &Cursor<'_>) -> Vec<CompletionItem> {
    let Some(shape) = cursor.view.shape(&cursor.place.path) else {
        return Vec::new();
    };
    let is_element = matches!(cursor.place.path.steps().last(), Some(Step::Index(_)));
    let holder = cursor.place.container.filter(|_| is_element);
    let own = cursor.place.token(cursor.offset);
    let others: Vec<&str> = holder
        .map_or(&[][..], Node::elements)
        .iter()
        .filter(|one| one.span != own)
        .filter_map(Node::as_str)
        .collect();
    let mut words: Vec<String> = shape.words().into_iter().map(str::to_owned).collect();
    if matches!(cursor.place.path.steps(), [Step::Key(key), ..] if &**key == "capabilities") {
        words.extend(cursor.view.extra_capabilities());
    }
    let words = words.iter().map(String::as_str);
    let words = words.filter(|word| !others.contains(word));
    words
        .map(|word| {
            let mut item = cursor.text(word);
            item.kind = CompletionKind::Enum;
            item
        })
        .collect()
}

fn backends(cursor: &Cursor<'_>) -> Vec<CompletionItem> {
    let here = determined_value(cursor.view, &cursor.place.path);
    let all = Backend::ALL.into_iter();
    all.map(|backend| {
        let is_here = here.as_deref() == Some(backend.name());
        let item = cursor.text(backend.name()).detail(backend.title());
        item.rank(if is_here { 0 } else { 5 })
    })
    .collect()
}

fn licenses(cursor: &Cursor<'_>) -> Vec<CompletionItem> {
    let usual = ["Apache-2.0", "MIT"];
    license::names()
        .map(|(name, full)| {
            let item = cursor
                .text(name)
                .rank(if usual.contains(&name) { 1 } else { 5 });
            item.detail(full.unwrap_or("short name in model cards"))
        })
        .collect()
}

fn precisions(cursor: &Cursor<'_>) -> Vec<CompletionItem> {
    let view = cursor.view;
    let (list, _) = view.session.precisions(view.found);
    let variant = view.variant(&cursor.place.path);
    let named = variant.and_then(|variant| {
        let component = variant.components().next().map(|(_, reference)| reference);
        variant
            .node
            .get("file")
            .and_then(Node::as_str)
            .or(component)
    });
    let stem = named.map(|file| file.rsplit_once('.').map_or(file, |(stem, _)| stem));
    list.tokens()
        .map(|token| {
            let is_named = stem.is_some_and(|stem| naming::has_token(stem, token));
            let quantized = list.is_quantized(token) == Some(true);
            cursor
                .text(token)
                .detail(if quantized {
                    "quantized"
                } else {
                    "not quantized"
                })
                .rank(if is_named { 0 } else { 5 })
        })
        .collect()
}

fn sizes(cursor: &Cursor<'_>) -> Vec<CompletionItem> {
    let view = cursor.view;
    let variant = view.variant(&cursor.place.path);
    let size = variant.and_then(|variant| view.size_on_disk(variant));
    let item = size.map(|size| {
        let span = cursor.place.token(cursor.offset);
        let insert = InsertText::Plain(format!("{size}{}", cursor.comma()));
        let item = CompletionItem::new(&size.to_string(), CompletionKind::Value, insert, span);
        item.detail("size on disk").rank(0)
    });
    item.into_iter().collect()
}

/// Returns a template of a complete config.
fn config_template(cursor: &Cursor<'_>) -> CompletionItem {
    let certain = |key: &str, place: &str| {
        let word = determined_value(cursor.view, &JsonPath::root().key(key));
        word.map_or_else(|| place.to_owned(), |word| escaped(&word))
    };
    let schema = escaped(SCHEMA_ID);
    let model = certain("model", "$1");
    let backend = certain("backend", "$4");
    let snippet = format!(
        "{{\n  \"\\$schema\": \"{schema}\",\n  \"model\": \"{model}\",\n  \"family\": \"$2\",\n  \
         \"capabilities\": [\"$3\"],\n  \"backend\": \"{backend}\",\n  \"license\": \"$5\",\n  \
         \"variants\": [\n    {{\n      \"precision\": \"$6\",\n      \"file\": \"$7\"\n    }}\n  ]\n}}"
    );
    let span = cursor.place.token(cursor.offset);
    let item = CompletionItem::new(
        "package config",
        CompletionKind::Value,
        InsertText::Snippet(snippet),
        span,
    );
    item.detail("template of a config")
}
