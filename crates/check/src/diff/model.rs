//! Compares facts of a model file other than its signatures: format, delegates, external data,
//! operators, constants.

use std::collections::{BTreeMap, BTreeSet};

use super::kinds::{
    BACKEND_DROPPED, BACKEND_NEEDED, CONSTANT_ADDED, CONSTANT_CHANGED, CONSTANT_REMOVED,
    DATA_DROPPED, DATA_NEEDED, FORMAT_CHANGED, FORMAT_VERSION, OPERATOR_ADDED,
};
use super::{Change, ChangeLocation};
use pkgtool_model::{Method, ModelInfo, ValueKind};

/// Maximum number of names listed in one change.
const MAX_NAMES: usize = 8;
/// Maximum length of a value in a message, in characters.
const MAX_VALUE_CHARS: usize = 60;

/// Adds the changes to `out`.
pub(super) fn compare(
    old: &ModelInfo,
    new: &ModelInfo,
    place: &ChangeLocation,
    out: &mut Vec<Change>,
) {
    if old.format != new.format {
        let (old, new) = (old.format.to_owned(), new.format.to_owned());
        out.push(Change::new(&FORMAT_CHANGED, place, "format", old, new));
        return;
    }
    if old.format_version != new.format_version {
        let versions = (old.format_version.clone(), new.format_version.clone());
        let kind = &FORMAT_VERSION;
        out.push(Change::new(
            kind,
            place,
            "format version",
            versions.0,
            versions.1,
        ));
    }
    delegates(old, new, place, out);
    external(old, new, place, out);
    operators(old, new, place, out);
    constants(old, new, place, out);
}

fn delegates(old: &ModelInfo, new: &ModelInfo, place: &ChangeLocation, out: &mut Vec<Change>) {
    let ids = |info: &ModelInfo| -> BTreeSet<String> {
        let delegates = info.methods.iter().flat_map(|method| &method.delegates);
        delegates.map(|delegate| delegate.id.clone()).collect()
    };
    let (old, new) = (ids(old), ids(new));
    for id in new.difference(&old) {
        let subject = format!("need of {id}");
        out.push(Change::new(&BACKEND_NEEDED, place, subject, None, None).note("new"));
    }
    for id in old.difference(&new) {
        let subject = format!("need of {id}");
        out.push(Change::new(&BACKEND_DROPPED, place, subject, None, None).note("gone"));
    }
}

fn external(old: &ModelInfo, new: &ModelInfo, place: &ChangeLocation, out: &mut Vec<Change>) {
    let places = |info: &ModelInfo| -> BTreeSet<String> {
        let data = info.external.iter();
        data.map(|data| match &data.location {
            Some(location) => format!("`{location}`"),
            None => "a data file".to_owned(),
        })
        .collect()
    };
    let (old, new) = (places(old), places(new));
    let both = |set: &BTreeSet<String>, other: &BTreeSet<String>| {
        let only: Vec<String> = set.difference(other).cloned().collect();
        (!only.is_empty()).then(|| listed(&only))
    };
    let subject = "external weights";
    if let Some(more) = both(&new, &old) {
        out.push(Change::new(&DATA_NEEDED, place, subject, None, more));
    }
    if let Some(less) = both(&old, &new) {
        out.push(Change::new(&DATA_DROPPED, place, subject, less, None));
    }
}

fn operators(old: &ModelInfo, new: &ModelInfo, place: &ChangeLocation, out: &mut Vec<Change>) {
    let names = |info: &ModelInfo| -> BTreeSet<String> {
        let operators = info
            .methods
            .iter()
            .flat_map(|method| method.operators.keys());
        operators.cloned().collect()
    };
    let known = names(old);
    let more: Vec<String> = names(new).difference(&known).cloned().collect();
    if !more.is_empty() {
        out.push(Change::new(
            &OPERATOR_ADDED,
            place,
            "operators",
            None,
            listed(&more),
        ));
    }
}

fn constants(old: &ModelInfo, new: &ModelInfo, place: &ChangeLocation, out: &mut Vec<Change>) {
    let values = |info: &ModelInfo| -> BTreeMap<String, String> {
        let constants = info.methods.iter().filter(|method| method.constant);
        constants
            .map(|method| (method.name.clone(), value(method)))
            .collect()
    };
    let (old, new) = (values(old), values(new));
    let at = |name: &str| format!("constant method `{name}`");
    for (name, was) in &old {
        let was_shown = shown(was);
        match new.get(name) {
            Some(is) if is == was => {}
            Some(is) => {
                let is = shown(is);
                out.push(Change::new(
                    &CONSTANT_CHANGED,
                    place,
                    at(name),
                    was_shown,
                    is,
                ));
            }
            None => out.push(Change::new(
                &CONSTANT_REMOVED,
                place,
                at(name),
                was_shown,
                None,
            )),
        }
    }
    for (name, is) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        out.push(Change::new(
            &CONSTANT_ADDED,
            place,
            at(name),
            None,
            shown(is),
        ));
    }
}

/// Formats the value that a constant method returns.
fn value(method: &Method) -> String {
    let values = method.outputs.iter().map(|output| match &output.kind {
        ValueKind::Tensor { info, data } => match data {
            Some(data) => {
                let elements: Vec<String> = data.iter().map(ToString::to_string).collect();
                format!("{info} {}", elements.join(" "))
            }
            None => info.to_string(),
        },
        ValueKind::Int(value) => value.to_string(),
        ValueKind::Double(value) => value.to_string(),
        ValueKind::Bool(value) => value.to_string(),
        ValueKind::String(text) => format!("{text:?}"),
        other => other.name().to_owned(),
    });
    values.collect::<Vec<_>>().join(", ")
}

fn shown(value: &str) -> String {
    match value.char_indices().nth(MAX_VALUE_CHARS) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}

fn listed(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_NAMES).map(String::as_str).collect();
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
