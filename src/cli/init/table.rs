//! A drafted config as a table for people: each field, its value, and what it was inferred from.

use std::fmt::Write as _;

use serde_json::Value as Json;

use pkgtool_base::diagnostic::TextTable;
use pkgtool_base::source::text::defuse_line;
use pkgtool_check::author::init::{ConfigDraft, DraftField};

/// Maximum length of a value that is shown in full, in characters.
const MAX_VALUE_CHARS: usize = 48;

/// Renders the table of a draft. `fate` is the outcome, such as `written`.
pub(super) fn render(draft: &ConfigDraft, fate: &str) -> String {
    let mut out = format!("{} ({fate})\n", defuse_line(&draft.shown));
    // The field with the address of the format itself is left out.
    let fields = draft
        .fields
        .iter()
        .filter(|field| field.pointer != "/$schema");
    let mut table = TextTable::of_text(3).indented();
    for field in fields {
        table.row(row(field));
    }
    let _ = write!(out, "{table}");
    for missing in &draft.missing {
        let proposal = match &missing.proposal {
            Some(text) => format!(", maybe {text}"),
            None => String::new(),
        };
        let name = defuse_line(&missing.need.flag());
        let _ = writeln!(
            out,
            "  missing: {name}{proposal}  ← {}",
            defuse_line(&missing.why)
        );
    }
    for remark in &draft.remarks {
        let _ = writeln!(out, "  note: {}", defuse_line(remark));
    }
    out
}

fn row(field: &DraftField) -> [String; 3] {
    let name = field.pointer.trim_start_matches('/');
    let guess = if field.guess { "likely: " } else { "" };
    [
        defuse_line(name),
        truncate_value(&words(&field.value)),
        format!("← {guess}{}", defuse_line(&field.evidence)),
    ]
}

fn words(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Array(elements) => elements.iter().map(words).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn truncate_value(text: &str) -> String {
    let text = defuse_line(text);
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
