//! The special tokens that a template may write, as template variables.

use std::path::Path;

use serde_json::{Map, Value};

use super::error::FindError;
use super::files::object;

/// Collects variables such as `bos_token` from the tokenizer config and from
/// `special_tokens_map.json`, which older packages have.
pub(super) fn of(
    config: &Map<String, Value>,
    folders: &[&Path],
) -> Result<Map<String, Value>, FindError> {
    let mut tokens = Map::new();
    let mut add = |name: &str, value: &Value| {
        if let Some(text) = token_text(value) {
            let entry = tokens.entry(name.to_owned());
            entry.or_insert_with(|| text.into());
        }
    };
    let older = folders
        .iter()
        .map(|folder| folder.join("special_tokens_map.json"));
    let older = older.into_iter().find(|file| file.is_file());
    let older = older.map(|file| object(&file)).transpose()?;
    for source in [Some(config), older.as_ref()].into_iter().flatten() {
        for (name, value) in source.iter().filter(|(name, _)| name.ends_with("_token")) {
            add(name, value);
        }
        let named = source
            .get("extra_special_tokens")
            .and_then(Value::as_object);
        for (name, value) in named.into_iter().flatten() {
            add(name, value);
        }
    }
    let list = config
        .get("additional_special_tokens")
        .and_then(Value::as_array);
    if let Some(list) = list {
        let texts: Vec<Value> = list
            .iter()
            .filter_map(token_text)
            .map(Value::from)
            .collect();
        tokens.insert("additional_special_tokens".to_owned(), texts.into());
    }
    Ok(tokens)
}

/// Returns a token's text. It is written as a string or as `{"content": text}`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}
