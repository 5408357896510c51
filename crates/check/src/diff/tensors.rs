//! Compares the inputs or the outputs of one method in two versions.

use std::collections::{HashMap, HashSet};

use super::align::{AlignedPair, align};
use super::kinds::{
    DTYPE, INPUT_ADDED, INPUT_NAME, INPUT_ORDER, INPUT_REMOVED, KIND_CHANGED, OUTPUT_ADDED,
    OUTPUT_NAME, OUTPUT_ORDER, OUTPUT_REMOVED, RANK, TENSOR_NAME,
};
use super::side::SignatureSide;
use super::signature::{DeclaredSignature, Spec, SpecType};
use super::{Change, ChangeKind, ChangeLocation};

/// The context of a comparison of two lists.
struct Lists<'a> {
    side: SignatureSide,
    place: &'a ChangeLocation,
    /// True if tensors are passed by name.
    by_name: bool,
    /// True if a dimension of an input became dynamic.
    explained: bool,
}

/// Adds the changes between two signatures of a method.
pub(super) fn compare(
    old: &DeclaredSignature,
    new: &DeclaredSignature,
    by_name: bool,
    place: &ChangeLocation,
    out: &mut Vec<Change>,
) {
    for side in [SignatureSide::Input, SignatureSide::Output] {
        let lists = Lists {
            side,
            place,
            by_name,
            explained: became_dynamic(old, new),
        };
        let (old, new) = match side {
            SignatureSide::Input => (&old.inputs, &new.inputs),
            SignatureSide::Output => (&old.outputs, &new.outputs),
        };
        lists.compare(old, new, out);
    }
}

/// Returns whether a fixed dimension of an input became dynamic.
fn became_dynamic(old: &DeclaredSignature, new: &DeclaredSignature) -> bool {
    let mut pairs = old.inputs.iter().zip(&new.inputs);
    pairs.any(|(old, new)| match (&old.what, &new.what) {
        (SpecType::Tensor { dims: Some(a), .. }, SpecType::Tensor { dims: Some(b), .. }) => {
            let mut dims = a.iter().zip(b);
            dims.any(|(a, b)| !a.is_dynamic() && b.is_dynamic())
        }
        _ => false,
    })
}

impl Lists<'_> {
    fn compare(&self, old: &[Spec], new: &[Spec], out: &mut Vec<Change>) {
        if let Some(order) = other_order(old, new) {
            let names = |specs: &[Spec]| {
                let names = specs.iter().filter_map(|spec| spec.name.as_deref());
                names.collect::<Vec<_>>().join(", ")
            };
            let kind = self.of(&INPUT_ORDER, &OUTPUT_ORDER);
            out.push(self.change(kind, format!("{}s", self.noun()), names(old), names(new)));
            for (at, old) in order.into_iter().zip(old) {
                self.one(at, old, &new[at], out);
            }
            return;
        }
        let Some(pairs) = align(old, new, same) else {
            let kind = if old.len() > new.len() {
                self.of(&INPUT_REMOVED, &OUTPUT_REMOVED)
            } else {
                self.of(&INPUT_ADDED, &OUTPUT_ADDED)
            };
            let subject = format!("number of {}s", self.noun());
            let counts = (old.len().to_string(), new.len().to_string());
            out.push(self.change(kind, subject, counts.0, counts.1));
            return;
        };
        for pair in pairs {
            match pair {
                AlignedPair::Both(at, to) => self.one(to, &old[at], &new[to], out),
                AlignedPair::Old(at) => out.push(Change::new(
                    self.of(&INPUT_REMOVED, &OUTPUT_REMOVED),
                    self.place,
                    self.subject(at),
                    shown(&old[at]),
                    None,
                )),
                AlignedPair::New(at) => out.push(Change::new(
                    self.of(&INPUT_ADDED, &OUTPUT_ADDED),
                    self.place,
                    self.subject(at),
                    None,
                    shown(&new[at]),
                )),
            }
        }
    }

    /// Adds the changes of one tensor; `at` is its index in the new list.
    fn one(&self, at: usize, old: &Spec, new: &Spec, out: &mut Vec<Change>) {
        if old.name != new.name {
            let both = old.name.is_some() && new.name.is_some();
            let kind = if self.by_name && both {
                self.of(&INPUT_NAME, &OUTPUT_NAME)
            } else {
                &TENSOR_NAME
            };
            let subject = format!("name of {}", self.subject(at));
            let names = (old.name.clone(), new.name.clone());
            out.push(Change::new(kind, self.place, subject, names.0, names.1));
        }
        let (
            SpecType::Tensor {
                dtype: old_dtype,
                dims: old_dims,
            },
            SpecType::Tensor {
                dtype: new_dtype,
                dims: new_dims,
            },
        ) = (&old.what, &new.what)
        else {
            if old.what != new.what {
                let texts = (old.what.to_string(), new.what.to_string());
                out.push(self.change(&KIND_CHANGED, self.subject(at), texts.0, texts.1));
            }
            return;
        };
        let texts = || (old.what.to_string(), new.what.to_string());
        if let (Some(a), Some(b)) = (old_dtype, new_dtype)
            && a != b
        {
            out.push(self.change(&DTYPE, self.subject(at), a.clone(), b.clone()));
        }
        let (Some(a), Some(b)) = (old_dims, new_dims) else {
            return;
        };
        if a.len() != b.len() {
            let texts = texts();
            out.push(self.change(&RANK, self.subject(at), texts.0, texts.1));
            return;
        }
        for (dim, (a, b)) in a.iter().zip(b).enumerate() {
            if let Some(kind) = a.change(b, self.side, self.explained) {
                let subject = format!("{} dimension {dim}", self.subject(at));
                out.push(self.change(kind, subject, a.to_string(), b.to_string()));
            }
        }
    }

    fn change(
        &self,
        kind: &'static ChangeKind,
        subject: String,
        old: String,
        new: String,
    ) -> Change {
        Change::new(kind, self.place, subject, old, new)
    }

    fn of(&self, input: &'static ChangeKind, output: &'static ChangeKind) -> &'static ChangeKind {
        match self.side {
            SignatureSide::Input => input,
            SignatureSide::Output => output,
        }
    }

    fn noun(&self) -> &'static str {
        match self.side {
            SignatureSide::Input => "input",
            SignatureSide::Output => "output",
        }
    }

    fn subject(&self, at: usize) -> String {
        format!("{} {at}", self.noun())
    }
}

/// Returns the new index of each element of `old`, if both lists have the same names in another
/// order.
fn other_order(old: &[Spec], new: &[Spec]) -> Option<Vec<usize>> {
    let names = |specs: &[Spec]| -> Option<Vec<String>> {
        let names: Vec<String> = specs
            .iter()
            .map(|spec| spec.name.clone())
            .collect::<Option<_>>()?;
        let unique: HashSet<&String> = names.iter().collect();
        (unique.len() == names.len()).then_some(names)
    };
    let (old, new) = (names(old)?, names(new)?);
    if old == new || old.len() != new.len() {
        return None;
    }
    let places: HashMap<&String, usize> = new.iter().zip(0..).collect();
    old.iter().map(|name| places.get(name).copied()).collect()
}

/// Returns whether two elements correspond when the lists have different lengths.
fn same(old: &Spec, new: &Spec) -> bool {
    match (&old.name, &new.name) {
        (Some(a), Some(b)) => a == b,
        _ => old.what == new.what,
    }
}

fn shown(spec: &Spec) -> String {
    match &spec.name {
        Some(name) => format!("{} `{name}`", spec.what),
        None => spec.what.to_string(),
    }
}
