//! Compares two trees of packages: pairs up the packages and collects the changes of each pair.

use std::collections::{BTreeMap, BTreeSet};

use super::kinds::{
    PACKAGE_ADDED, PACKAGE_BROKEN, PACKAGE_MENDED, PACKAGE_REMOVED, PRECISION_LIST,
};
use super::tree::{ComparedTree, Package, Packages, Reading};
use super::{Change, ChangeLocation, Difference, fields, variants};
use pkgtool_base::package::PrecisionList;

/// Returns the changes from `old` to `new`.
pub fn compare(old: &ComparedTree, new: &ComparedTree, reading: Reading) -> Difference {
    let (old, new) = rayon::join(|| old.read(reading), || new.read(reading));
    let mut difference = Difference {
        notes: [&old.notes[..], &new.notes[..]].concat(),
        ..Difference::default()
    };
    let pairs = matched(&old.readable, &new.readable);
    for (at, package) in old.readable.iter().enumerate() {
        if let Some(to) = pairs[at] {
            difference.compared += 1;
            let changes = compare_pair(package, &new.readable[to], reading);
            difference.changes.extend(changes);
        } else if !new.broken.contains_key(&package.path) {
            let change = whole(&PACKAGE_REMOVED, package);
            difference.changes.push(change.note("gone"));
        }
    }
    for (to, package) in new.readable.iter().enumerate() {
        if !pairs.contains(&Some(to)) && !old.broken.contains_key(&package.path) {
            let change = whole(&PACKAGE_ADDED, package);
            difference.changes.push(change.note("new"));
        }
    }
    broken(&old, &new, &mut difference);
    difference.compared += lists(&old.lists, &new.lists, &mut difference.changes);
    difference.sort();
    difference
}

impl Difference {
    /// Returns whether nothing was compared: neither side has a readable config or precision list.
    pub fn is_void(&self) -> bool {
        self.compared == 0 && self.changes.is_empty()
    }
}

fn compare_pair(old: &Package, new: &Package, reading: Reading) -> Vec<Change> {
    let place = place(new);
    let mut changes = Vec::new();
    fields::compare(old, new, &place, &mut changes);
    variants::compare(old, new, reading, &place, &mut changes);
    fields::cosmetics(old, new, &place, &mut changes);
    changes
}

fn place(package: &Package) -> ChangeLocation {
    ChangeLocation {
        package: package.name(),
        config: package.path.clone(),
        ..ChangeLocation::default()
    }
}

fn whole(kind: &'static super::ChangeKind, package: &Package) -> Change {
    let subject = format!("package `{}`", package.path);
    Change::new(kind, &place(package), subject, None, None)
}

/// Pairs each package of `old` with its successor in `new`. Candidates in order: the same model,
/// size and backend at the same path; the same anywhere; the same path with any identity; the only
/// package left.
fn matched(old: &[Package], new: &[Package]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; old.len()];
    let mut taken = vec![false; new.len()];
    let tests: [fn(&Package, &Package) -> bool; 3] = [
        |a, b| a.key() == b.key() && a.path == b.path,
        |a, b| a.key() == b.key(),
        |a, b| a.path == b.path,
    ];
    for test in tests {
        for (at, package) in old.iter().enumerate() {
            if pairs[at].is_some() {
                continue;
            }
            let fits = |to: &usize| !taken[*to] && test(package, &new[*to]);
            if let Some(to) = (0..new.len()).find(fits) {
                pairs[at] = Some(to);
                taken[to] = true;
            }
        }
    }
    if let ([pair @ None], [_]) = (&mut pairs[..], new) {
        *pair = Some(0);
    }
    pairs
}

fn broken(old: &Packages, new: &Packages, difference: &mut Difference) {
    let at = |path: &str| ChangeLocation {
        package: path.to_owned(),
        config: path.to_owned(),
        ..ChangeLocation::default()
    };
    for (path, reason) in &new.broken {
        if old.broken.contains_key(path) {
            let note = format!("{path}: cannot be read in either version, not compared: {reason}");
            difference.notes.push(note);
            continue;
        }
        let was = old.readable.iter().any(|package| &package.path == path);
        if was || old.lists.contains_key(path) {
            let change = Change::new(&PACKAGE_BROKEN, &at(path), "config", None, None);
            difference.changes.push(change.note(reason));
        } else {
            let note = format!("{path}: new, and cannot be read: {reason}");
            difference.notes.push(note);
        }
    }
    for (path, reason) in &old.broken {
        if new.broken.contains_key(path) {
            continue;
        }
        if new.readable.iter().any(|package| &package.path == path) {
            let change = Change::new(&PACKAGE_MENDED, &at(path), "config", None, None);
            difference.changes.push(change.note("can be read again"));
        } else {
            let note = format!("{path}: could not be read in the older version: {reason}");
            difference.notes.push(note);
        }
    }
}

/// Adds the changes of the precision lists. Returns the number of lists that exist on both sides.
fn lists(
    old: &BTreeMap<String, PrecisionList>,
    new: &BTreeMap<String, PrecisionList>,
    out: &mut Vec<Change>,
) -> usize {
    let mut compared = 0;
    for (path, was) in old {
        let Some(is) = new.get(path) else { continue };
        compared += 1;
        let place = ChangeLocation {
            package: path.clone(),
            config: path.clone(),
            ..ChangeLocation::default()
        };
        let (was, is) = (sides(was), sides(is));
        let tokens: BTreeSet<&str> = was.keys().chain(is.keys()).copied().collect();
        for token in tokens {
            let side = |sides: &BTreeMap<&str, &str>| sides.get(token).map(|it| (*it).to_owned());
            let (was, is) = (side(&was), side(&is));
            if was != is {
                let subject = format!("precision `{token}`");
                out.push(Change::new(&PRECISION_LIST, &place, subject, was, is));
            }
        }
    }
    compared
}

fn sides(list: &PrecisionList) -> BTreeMap<&str, &str> {
    let quantized = list.quantized.iter().map(|token| (token, "quantized"));
    let others = list.non_quantized.iter();
    let all = quantized.chain(others.map(|token| (token, "not quantized")));
    all.map(|(token, side)| (token.as_str(), side)).collect()
}
