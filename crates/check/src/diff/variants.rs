//! Compares the variants of a package in two versions, and their files.

use std::collections::{HashMap, HashSet, VecDeque};

use super::content::PathContent;
use super::kinds::{
    COMPONENT_ADDED, COMPONENT_REMOVED, CONTENT_CHANGED, FILE_MENDED, FILE_MISSING, FILE_RENAMED,
    LAYOUT_CHANGED, MODEL_BROKEN, MODEL_MENDED, ORDER, SIZE_CHANGED, VARIANT_ADDED,
    VARIANT_REMOVED,
};
use super::part::{FileVersion, ModelContent};
use super::tree::{Package, Reading};
use super::{Change, ChangeLocation, methods, model};
use pkgtool_base::package::Variant;

/// Adds the changes to `out`.
pub(super) fn compare(
    old: &Package,
    new: &Package,
    reading: Reading,
    place: &ChangeLocation,
    out: &mut Vec<Change>,
) {
    let pairs = matched(&old.config.variants, &new.config.variants);
    let (was, is) = (labels(&old.config.variants), labels(&new.config.variants));
    for (at, name) in was.iter().enumerate() {
        if let Some(to) = pairs[at] {
            let place = place.variant(name);
            let (a, b) = (&old.variants[at][..], &new.variants[to][..]);
            parts(a, b, reading, &place, out);
            let declared = |package: &Package, at: usize| package.config.variants[at].size_bytes;
            let old_size = total(a).or(declared(old, at));
            sizes(old_size, total(b).or(declared(new, to)), &place, out);
        } else {
            let subject = format!("variant `{name}`");
            let files = described(&old.variants[at]);
            out.push(Change::new(&VARIANT_REMOVED, place, subject, files, None));
        }
    }
    let kept: HashSet<usize> = pairs.iter().copied().flatten().collect();
    for (to, name) in is.iter().enumerate().filter(|(to, _)| !kept.contains(to)) {
        let subject = format!("variant `{name}`");
        let files = described(&new.variants[to]);
        out.push(Change::new(&VARIANT_ADDED, place, subject, None, files));
    }
    if !pairs.iter().flatten().is_sorted() {
        let (was, is) = (was.join(", "), is.join(", "));
        out.push(Change::new(&ORDER, place, "order of variants", was, is));
    }
}

/// Pairs each variant of `old` with its successor in `new`: one of the same precision; among
/// several, the one with the same file; else in order.
fn matched(old: &[Variant], new: &[Variant]) -> Vec<Option<usize>> {
    type Key<'v> = (Option<&'v str>, Option<&'v str>);
    let by_file: fn(&Variant) -> Key<'_> = |variant| {
        let file = variant.files.first().map(|file| file.reference.as_str());
        (variant.precision.as_deref(), file)
    };
    let by_precision: fn(&Variant) -> Key<'_> = |variant| (variant.precision.as_deref(), None);
    let mut pairs = vec![None; old.len()];
    let mut taken = vec![false; new.len()];
    for key in [by_file, by_precision] {
        let mut free: HashMap<Key<'_>, VecDeque<usize>> = HashMap::new();
        for (to, variant) in new.iter().enumerate().filter(|(to, _)| !taken[*to]) {
            free.entry(key(variant)).or_default().push_back(to);
        }
        for (pair, variant) in pairs.iter_mut().zip(old).filter(|(pair, _)| pair.is_none()) {
            *pair = free.get_mut(&key(variant)).and_then(VecDeque::pop_front);
            if let Some(to) = *pair {
                taken[to] = true;
            }
        }
    }
    pairs
}

/// Returns a label for each variant: its precision, with the file if several variants have that
/// precision.
fn labels(variants: &[Variant]) -> Vec<String> {
    let mut counts: HashMap<Option<&str>, usize> = HashMap::new();
    for variant in variants {
        *counts.entry(variant.precision.as_deref()).or_default() += 1;
    }
    let label = |variant: &Variant| {
        let precision = variant.precision.as_deref();
        match variant.files.first() {
            Some(file) if counts[&precision] > 1 => {
                format!("{} {}", precision.unwrap_or("?"), file.reference)
            }
            _ => precision.unwrap_or("?").to_owned(),
        }
    };
    variants.iter().map(label).collect()
}

fn described(parts: &[FileVersion]) -> String {
    let names: Vec<&str> = parts.iter().map(|part| part.reference.as_str()).collect();
    match total(parts) {
        Some(size) => format!("{} ({})", names.join(", "), bytes(size)),
        None => names.join(", "),
    }
}

fn parts(
    old: &[FileVersion],
    new: &[FileVersion],
    reading: Reading,
    place: &ChangeLocation,
    out: &mut Vec<Change>,
) {
    let single = |parts: &[FileVersion]| parts.iter().any(|part| part.component.is_none());
    if single(old) != single(new) && !old.is_empty() && !new.is_empty() {
        let (old, new) = (described(old), described(new));
        out.push(Change::new(&LAYOUT_CHANGED, place, "files", old, new));
        return;
    }
    let (was, is) = (by_component(old), by_component(new));
    let name =
        |part: &FileVersion| format!("component `{}`", part.component.as_deref().unwrap_or(""));
    let mut order = Vec::new();
    for part in old {
        if let Some(to) = is.get(&part.component.as_deref()) {
            order.push(*to);
            let place = place.component(part.component.as_deref());
            files(part, &new[*to], reading, &place, out);
        } else {
            let was = part.reference.clone();
            out.push(Change::new(
                &COMPONENT_REMOVED,
                place,
                name(part),
                was,
                None,
            ));
        }
    }
    let is_new = |part: &&FileVersion| !was.contains_key(&part.component.as_deref());
    for part in new.iter().filter(is_new) {
        let file = part.reference.clone();
        out.push(Change::new(&COMPONENT_ADDED, place, name(part), None, file));
    }
    if !order.is_sorted() {
        let names = |parts: &[FileVersion]| {
            let names = parts.iter().filter_map(|part| part.component.as_deref());
            names.collect::<Vec<_>>().join(", ")
        };
        let (old, new) = (names(old), names(new));
        out.push(Change::new(&ORDER, place, "order of components", old, new));
    }
}

fn by_component(parts: &[FileVersion]) -> HashMap<Option<&str>, usize> {
    let names = parts.iter().map(|part| part.component.as_deref());
    names.zip(0..).collect()
}

fn files(
    old: &FileVersion,
    new: &FileVersion,
    reading: Reading,
    place: &ChangeLocation,
    out: &mut Vec<Change>,
) {
    renamed(old, new, "file", place, out);
    if presence(&old.content, &new.content, "file", place, out) {
        let same = old.content.is_same(&new.content, reading.open_models);
        match (&old.model, &new.model) {
            _ if same == Some(true) => {}
            (ModelContent::Read(_), ModelContent::Broken(reason)) => {
                out.push(Change::new(&MODEL_BROKEN, place, "model file", None, None).note(reason));
            }
            (ModelContent::Broken(_), ModelContent::Read(_)) => {
                out.push(
                    Change::new(&MODEL_MENDED, place, "model file", None, None).note("readable"),
                );
            }
            (ModelContent::Read(a), ModelContent::Read(b)) => model::compare(a, b, place, out),
            _ => {}
        }
        if same == Some(false) && old.content.size() == new.content.size() {
            let change = Change::new(&CONTENT_CHANGED, place, "content", None, None);
            out.push(change.note("of the same size"));
        }
        methods::compare(old, new, same == Some(true), place, out);
    } else {
        methods::compare(old, new, false, place, out);
    }
}

/// Adds a change if the name or path of a file changed.
pub(super) fn renamed(
    old: &FileVersion,
    new: &FileVersion,
    noun: &str,
    place: &ChangeLocation,
    out: &mut Vec<Change>,
) {
    if old.reference != new.reference {
        let names = (old.reference.clone(), new.reference.clone());
        out.push(Change::new(&FILE_RENAMED, place, noun, names.0, names.1));
    }
}

/// Adds a change if a file disappeared or appeared. Returns whether both exist.
pub(super) fn presence(
    old: &PathContent,
    new: &PathContent,
    noun: &str,
    place: &ChangeLocation,
    out: &mut Vec<Change>,
) -> bool {
    match (old, new) {
        (PathContent::Missing(_), PathContent::Missing(_)) => {}
        (_, PathContent::Missing(reason)) => {
            out.push(Change::new(&FILE_MISSING, place, noun, None, None).note(reason));
        }
        (PathContent::Missing(_), _) => {
            out.push(Change::new(&FILE_MENDED, place, noun, None, None).note("there now"));
        }
        _ => {}
    }
    old.is_there() && new.is_there()
}

/// Returns the total size, if all sizes are known.
fn total(parts: &[FileVersion]) -> Option<u64> {
    if parts.is_empty() {
        return None;
    }
    let mut sizes = parts.iter().map(|part| part.content.size());
    sizes.try_fold(0_u64, |sum, size| sum.checked_add(size?))
}

fn sizes(old: Option<u64>, new: Option<u64>, place: &ChangeLocation, out: &mut Vec<Change>) {
    let Some((old, new)) = old.zip(new).filter(|(old, new)| old != new) else {
        return;
    };
    let change = Change::new(&SIZE_CHANGED, place, "size", bytes(old), bytes(new));
    let share = share(old, new);
    out.push(if share.is_empty() {
        change
    } else {
        change.note(share)
    });
}

/// Formats the relative change like `+12.5 %`; empty if the old size is 0.
fn share(old: u64, new: u64) -> String {
    if old == 0 {
        return String::new();
    }
    let (sign, less, more) = if new > old {
        ('+', old, new)
    } else {
        ('-', new, old)
    };
    let tenths = u128::from(more - less) * 1000 / u128::from(old);
    match tenths {
        0 => format!("{sign}{} bytes", more - less),
        _ => format!("{sign}{}.{} %", tenths / 10, tenths % 10),
    }
}

/// Formats a size like `12 bytes`, `3.4 MB`.
fn bytes(size: u64) -> String {
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    match units.into_iter().find(|(_, unit)| size >= *unit) {
        Some((name, unit)) => format!("{}.{} {name}", size / unit, size % unit * 10 / unit),
        None => format!("{size} bytes"),
    }
}
