//! Completion of references to files beside the config.

use std::fs;
use std::path::Path;

use super::super::place::SyntaxElement;
use super::cursor::Cursor;
use super::item::{CompletionItem, CompletionKind, InsertText, escaped};
use pkgtool_base::package::{config, model_file, precision};

/// Maximum number of directory entries that are read.
const MAX_ENTRIES: usize = 2000;
/// Extensions of tokenizer files.
const TOKENIZERS: [&str; 4] = ["json", "model", "txt", "bin"];

/// Returns the files that the reference at the cursor may name: models or tokenizers, and
/// directories on the way to them.
pub(super) fn files(cursor: &Cursor<'_>, models: bool) -> Vec<CompletionItem> {
    let typed = match cursor.place.part {
        SyntaxElement::Value(node) => node.as_str().unwrap_or_default(),
        _ => "",
    };
    let base = typed.rfind('/').map_or("", |slash| &typed[..=slash]);
    let ups = base.split('/').filter(|part| *part == "..").count();
    if base.starts_with('/') || ups > cursor.view.depth {
        return Vec::new();
    }
    let directory = cursor.view.directory.join(base);
    let mut items = directory_items(cursor, &directory, base, models);
    if ups < cursor.view.depth && base.split('/').all(|part| matches!(part, "" | "..")) {
        items.push(folder(cursor, &format!("{base}../")).rank(8));
    }
    items
}

fn directory_items(
    cursor: &Cursor<'_>,
    directory: &Path,
    base: &str,
    models: bool,
) -> Vec<CompletionItem> {
    let named: Vec<&str> = cursor
        .view
        .references()
        .iter()
        .map(|(_, name)| *name)
        .collect();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut entries: Vec<(String, bool)> = entries
        .take(MAX_ENTRIES)
        .filter_map(|entry| {
            let is_directory = entry.path().is_dir();
            Some((entry.file_name().into_string().ok()?, is_directory))
        })
        .filter(|(name, _)| !name.starts_with('.'))
        .collect();
    entries.sort();
    let mut items = Vec::new();
    for (name, is_directory) in entries {
        let reference = format!("{base}{name}");
        if is_directory && !(models && model_file::is_bundle(&name)) {
            items.push(folder(cursor, &format!("{reference}/")).rank(7));
        } else if fits(&name, models) {
            let is_named = named.contains(&reference.as_str());
            let mut item = cursor.text(&reference).rank(if is_named { 6 } else { 2 });
            item.kind = CompletionKind::File;
            let facts = cursor.view.file(&reference, false);
            if let Some(size) = facts.and_then(|facts| facts.size()) {
                item = item.detail(format!("{size} bytes"));
            }
            items.push(item);
        }
    }
    items
}

/// Returns the item of a directory. The string stays open, since the author continues within the
/// directory.
fn folder(cursor: &Cursor<'_>, reference: &str) -> CompletionItem {
    let span = cursor.place.token(cursor.offset);
    let quoted = serde_json::Value::from(reference).to_string();
    let insert = if cursor.view.client.snippets {
        let inner = escaped(&quoted[1..quoted.len() - 1]);
        InsertText::Snippet(format!("\"{inner}$1\"{}", cursor.comma()))
    } else {
        InsertText::Plain(format!("{quoted}{}", cursor.comma()))
    };
    CompletionItem::new(reference, CompletionKind::Folder, insert, span)
}

fn fits(name: &str, models: bool) -> bool {
    if models && model_file::has_extension(name) {
        return true;
    }
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    let is_own = name == config::FILE_NAME || name == precision::FILE_NAME;
    !is_own && !models && extension.is_some_and(|extension| TOKENIZERS.contains(&extension))
}
