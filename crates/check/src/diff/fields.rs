//! Compares the fields of two versions of a config, except for the variants.

use super::kinds::{
    CAPABILITY_ADDED, CAPABILITY_REMOVED, CONFIG_MOVED, FAMILY, FORMATTING, LICENSE_CHANGED,
    MODEL_RENAMED, ORDER, SCHEMA, TOKENIZER_ADDED, TOKENIZER_REMOVED,
};
use super::part::FileVersion;
use super::tree::Package;
use super::variants::{presence, renamed};
use super::{Change, ChangeKind, ChangeLocation, tokenizer};
use pkgtool_base::package::Backend;
use pkgtool_base::source::json::Node;

/// Adds the changes to `out`.
pub(super) fn compare(old: &Package, new: &Package, place: &ChangeLocation, out: &mut Vec<Change>) {
    let mut field = |kind: &'static ChangeKind, name: &str, a: Option<&str>, b: Option<&str>| {
        if a != b {
            let values = (a.map(quoted), b.map(quoted));
            out.push(Change::new(
                kind,
                place,
                format!("`{name}`"),
                values.0,
                values.1,
            ));
        }
    };
    let (a, b) = (&old.config, &new.config);
    field(
        &MODEL_RENAMED,
        "model",
        a.model.as_deref(),
        b.model.as_deref(),
    );
    field(&MODEL_RENAMED, "size", a.size.as_deref(), b.size.as_deref());
    let backends = (a.backend.map(Backend::name), b.backend.map(Backend::name));
    field(&MODEL_RENAMED, "backend", backends.0, backends.1);
    field(
        &LICENSE_CHANGED,
        "license",
        a.license.as_deref(),
        b.license.as_deref(),
    );
    field(&FAMILY, "family", a.family.as_deref(), b.family.as_deref());
    field(&SCHEMA, "$schema", schema(old), schema(new));
    capabilities(&a.capabilities, &b.capabilities, place, out);
    tokenizers(old, new, place, out);
}

/// Adds changes that are visible only in the text of the config.
pub(super) fn cosmetics(
    old: &Package,
    new: &Package,
    place: &ChangeLocation,
    out: &mut Vec<Change>,
) {
    if old.path != new.path {
        let paths = (old.path.clone(), new.path.clone());
        out.push(Change::new(
            &CONFIG_MOVED,
            place,
            "config",
            paths.0,
            paths.1,
        ));
    }
    let is_told = out.iter().any(|one| one.kind != &CONFIG_MOVED);
    if old.text != new.text && !is_told {
        let change = Change::new(&FORMATTING, place, "text of the config", None, None);
        out.push(change.note(
            if old.document.root.to_value() == new.document.root.to_value() {
                "same values, written differently"
            } else {
                "only differences that this command does not compare"
            },
        ));
    }
}

fn quoted(text: &str) -> String {
    format!("`{text}`")
}

fn schema(package: &Package) -> Option<&str> {
    package.document.root.get("$schema").and_then(Node::as_str)
}

fn capabilities(old: &[String], new: &[String], place: &ChangeLocation, out: &mut Vec<Change>) {
    let missing = |one: &&String, other: &[String]| !other.contains(*one);
    for one in old.iter().filter(|one| missing(one, new)) {
        let subject = format!("capability `{one}`");
        out.push(Change::new(&CAPABILITY_REMOVED, place, subject, None, None).note("gone"));
    }
    for one in new.iter().filter(|one| missing(one, old)) {
        let subject = format!("capability `{one}`");
        out.push(Change::new(&CAPABILITY_ADDED, place, subject, None, None).note("new"));
    }
    let order: Vec<usize> = old
        .iter()
        .filter_map(|one| new.iter().position(|other| other == one))
        .collect();
    if !order.is_sorted() {
        let (old, new) = (old.join(", "), new.join(", "));
        out.push(Change::new(
            &ORDER,
            place,
            "order of capabilities",
            old,
            new,
        ));
    }
}

fn tokenizers(old: &Package, new: &Package, place: &ChangeLocation, out: &mut Vec<Change>) {
    let find = |parts: &'_ [FileVersion], key: Option<&str>| {
        let mut places = parts.iter();
        places.position(|part| part.component.as_deref() == key)
    };
    for part in &old.tokenizers {
        let key = part.component.as_deref().unwrap_or_default();
        let noun = format!("`{key}`");
        let Some(to) = find(&new.tokenizers, part.component.as_deref()) else {
            let was = quoted(&part.reference);
            out.push(Change::new(&TOKENIZER_REMOVED, place, noun, was, None));
            continue;
        };
        let other = &new.tokenizers[to];
        renamed(part, other, &noun, place, out);
        let (a, b) = (&part.content, &other.content);
        let there = presence(a, b, &noun, place, out);
        // Tokenizers are always read; only models may be left unopened.
        if there && a.is_same(b, true) == Some(false) {
            let (kind, keys) = tokenizer::compare(key, a, b);
            let change = Change::new(kind, place, format!("content of {noun}"), None, None);
            out.push(match keys {
                Some(keys) => change.note(keys),
                None => change,
            });
        }
    }
    for part in &new.tokenizers {
        if find(&old.tokenizers, part.component.as_deref()).is_none() {
            let noun = format!("`{}`", part.component.as_deref().unwrap_or_default());
            let is = quoted(&part.reference);
            out.push(Change::new(&TOKENIZER_ADDED, place, noun, None, is));
        }
    }
}
