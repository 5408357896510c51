//! Compares the methods of one file in two versions: as declared in the config, and as recorded in
//! the model file.

use std::collections::{HashMap, HashSet};

use super::kinds::{DECLARED, METHOD_ADDED, METHOD_REMOVED, ORDER};
use super::part::FileVersion;
use super::signature::DeclaredSignature;
use super::{Change, ChangeLocation, tensors};

/// Formats whose tensors are passed by name.
const BY_NAME: [&str; 2] = ["onnx", "coreml"];

/// Maximum number of methods among which a renamed one is searched.
const MAX_RENAME_CANDIDATES: usize = 100;

/// Adds the changes to `out`. Callers rely on the declaration, and the model file determines the
/// behaviour. So a change of either counts, and the same change of both counts once. `same`: the
/// files are known to be equal.
pub(super) fn compare(
    old: &FileVersion,
    new: &FileVersion,
    same: bool,
    place: &ChangeLocation,
    out: &mut Vec<Change>,
) {
    let (old_model, new_model) = if same {
        (None, None)
    } else {
        (old.of_model(), new.of_model())
    };
    let mut found = Vec::new();
    if let (Some(a), Some(b)) = (&old_model, &new_model) {
        let by_name = |part: &FileVersion| {
            part.info()
                .is_some_and(|info| BY_NAME.contains(&info.format))
        };
        let by_name = by_name(old) && by_name(new);
        sets(a, b, by_name, place, &mut found);
    }
    match (&old.declared, &new.declared) {
        (Some(a), Some(b)) => sets(a, b, false, place, &mut found),
        (None, None) => {}
        // If one side declares no methods, those of its model file are compared instead.
        (a, b) => {
            let side = |declared: &Option<Vec<DeclaredSignature>>, part: &FileVersion| {
                let of_model = || part.of_model();
                declared.clone().or_else(of_model).map(declarable)
            };
            let mut mixed = Vec::new();
            if let (Some(a), Some(b)) = (side(a, old), side(b, new)) {
                sets(&a, &b, false, place, &mut mixed);
                // Names come from the author, so adding or omitting them is not a change.
                mixed.retain(|one| one.kind != &super::kinds::TENSOR_NAME && one.kind != &ORDER);
            }
            let methods = |declared: &Option<Vec<DeclaredSignature>>| {
                declared.as_ref().map(|methods| match methods.len() {
                    1 => "1 method".to_owned(),
                    count => format!("{count} methods"),
                })
            };
            found.push(Change::new(
                &DECLARED,
                place,
                "`methods`",
                methods(a),
                methods(b),
            ));
            found.append(&mut mixed);
        }
    }
    let mut seen = HashSet::new();
    found.retain(|one| seen.insert((one.kind.name, one.place.clone(), one.subject.clone())));
    out.append(&mut found);
}

fn declarable(methods: Vec<DeclaredSignature>) -> Vec<DeclaredSignature> {
    methods
        .into_iter()
        .map(DeclaredSignature::declarable)
        .collect()
}

fn sets(
    old: &[DeclaredSignature],
    new: &[DeclaredSignature],
    by_name: bool,
    place: &ChangeLocation,
    out: &mut Vec<Change>,
) {
    let (was, is) = (places(old), places(new));
    let mut order = Vec::new();
    for method in old {
        let at = place.method(&method.name);
        if let Some(&index) = is.get(method.name.as_str()) {
            order.push(index);
            tensors::compare(method, &new[index], by_name, &at, out);
            continue;
        }
        let subject = format!("method `{}`", method.name);
        let change = Change::new(&METHOD_REMOVED, place, subject, method.to_string(), None);
        let twin = new.iter().take(MAX_RENAME_CANDIDATES).find(|other| {
            !was.contains_key(other.name.as_str())
                && (&other.inputs, &other.outputs) == (&method.inputs, &method.outputs)
        });
        out.push(match twin {
            Some(twin) => change.note(format!("`{}` has its signature", twin.name)),
            None => change,
        });
    }
    let is_new = |method: &&DeclaredSignature| !was.contains_key(method.name.as_str());
    for method in new.iter().filter(is_new) {
        let subject = format!("method `{}`", method.name);
        out.push(Change::new(
            &METHOD_ADDED,
            place,
            subject,
            None,
            method.to_string(),
        ));
    }
    if !order.is_sorted() {
        let names = |methods: &[DeclaredSignature]| {
            let names: Vec<&str> = methods.iter().map(|method| method.name.as_str()).collect();
            names.join(", ")
        };
        let (old, new) = (names(old), names(new));
        out.push(Change::new(&ORDER, place, "order of methods", old, new));
    }
}

fn places(methods: &[DeclaredSignature]) -> HashMap<&str, usize> {
    let names = methods.iter().map(|method| method.name.as_str());
    names.zip(0..).collect()
}
