//! Compares a tokenizer file in two versions: decides whether a text may be encoded to other ids.

use std::path::Path;

use serde_json::{Map, Value};

use super::ChangeKind;
use super::content::{PathContent, bounded};
use super::kinds::{FORMATTING, TOKENIZER_IDS, TOKENIZER_OTHER};

/// Maximum size of a file that is parsed, in bytes; any change of a larger file counts.
const MAX_PARSED_BYTES: u64 = 64 * 1024 * 1024;
/// Keys of a `tokenizer.json` that do not affect the ids of a text: decoding, and the version of
/// the file format.
const NO_IDS: [&str; 2] = ["decoder", "version"];
/// Keys of a `tokenizer_config.json` that control which tokens are added around a text.
const ADDS_IDS: [&str; 8] = [
    "add_bos_token",
    "add_eos_token",
    "add_prefix_space",
    "added_tokens_decoder",
    "bos_token",
    "do_lower_case",
    "eos_token",
    "tokenizer_class",
];

/// Returns the kind of change between two files with different content, and the changed keys. `key`
/// is the config's key: `tokenizer` or `tokenizer_config`.
pub(super) fn compare(
    key: &str,
    old: &PathContent,
    new: &PathContent,
) -> (&'static ChangeKind, Option<String>) {
    let parsed = || Some((object(old.path()?)?, object(new.path()?)?));
    let Some((old, new)) = parsed() else {
        let kind = if key == "tokenizer" {
            &TOKENIZER_IDS
        } else {
            &TOKENIZER_OTHER
        };
        return (kind, None);
    };
    let keys = old
        .keys()
        .chain(new.keys().filter(|key| !old.contains_key(*key)));
    let changed: Vec<&str> = keys
        .filter(|key| old.get(*key) != new.get(*key))
        .map(String::as_str)
        .collect();
    if changed.is_empty() {
        return (&FORMATTING, None);
    }
    let tells_ids = |name: &&str| match key {
        "tokenizer" => !NO_IDS.contains(name),
        _ => ADDS_IDS.contains(name),
    };
    let kind = if changed.iter().any(tells_ids) {
        &TOKENIZER_IDS
    } else {
        &TOKENIZER_OTHER
    };
    let shown: Vec<String> = changed
        .iter()
        .take(8)
        .map(|key| format!("`{key}`"))
        .collect();
    (kind, Some(format!("in {}", shown.join(", "))))
}

fn object(path: &Path) -> Option<Map<String, Value>> {
    let bytes = bounded(path, MAX_PARSED_BYTES).ok()?;
    match serde_json::from_slice(&bytes).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}
