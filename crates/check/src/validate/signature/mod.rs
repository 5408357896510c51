//! Compares the method signatures declared in a config with the methods in the model files.
//!
//! The comparison claims only what the file proves: if the file records only that a dimension may
//! be dynamic, both -1 and its upper bound are accepted. Each error produces one mismatch: a wrong
//! tensor count hides the tensors, and a wrong rank hides the sizes.

mod compare;

use std::collections::{HashMap, HashSet};

use super::listing::listed;
use super::mend::ValueChange;
use super::references::{ReferencedFile, files_of};
use pkgtool_base::package::leftover::is_placeholder;
use pkgtool_base::package::{Config, MethodGroup, MethodSignature};
use pkgtool_base::source::{JsonPath, suggest};
use pkgtool_model::{Method, ModelInfo, declaration};

/// The kind of difference between a declaration and the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DifferenceKind {
    /// The model has no such method.
    MethodNotInModel,
    /// The model has a method that is not declared.
    MethodUndeclared,
    /// The number of tensors differs.
    Count,
    /// The element type differs.
    DType,
    /// The number of dimensions differs.
    Rank,
    /// A size differs.
    Shape,
    /// A declared size is invalid for any tensor; reported by the rule `tensor-dim`.
    Dim,
    /// A dimension is dynamic on one side only.
    Dynamic,
    /// The name differs.
    Name,
    /// The model has something that a config cannot express.
    Inexpressible,
}

/// A difference between a declaration and the model, with its location in the config.
#[derive(Debug, Clone)]
pub(super) struct Mismatch {
    pub(super) kind: DifferenceKind,
    /// The wrong value or, for a method, the wrong member.
    pub(super) path: JsonPath,
    pub(super) message: String,
    pub(super) help: Option<String>,
    /// The fix.
    pub(super) mend: Option<ValueChange>,
}

/// Maximum number of tensors written in fixes of one config, over all mismatches.
const MAX_FIXED_TENSORS: usize = 20_000;

/// Maximum number of collected differences, checked after each file; far more than are reported. A
/// model referenced by every variant can differ from each of them in every method.
const MAX_MISMATCHES: usize = 20_000;

/// Collects the differences of a config file by file.
pub(super) fn compare_all(config: &Config, files: &[ReferencedFile]) -> Vec<Mismatch> {
    let mut mismatches = Vec::new();
    for (index, variant) in config.variants.iter().enumerate() {
        let files = files_of(files, index);
        if files.iter().all(|file| file.model_info().is_none()) {
            continue;
        }
        let groups = variant.methods_by_component();
        for file in files {
            if mismatches.len() >= MAX_MISMATCHES {
                return mismatches;
            }
            let group = groups.get(&file.file.component.as_deref());
            // Formats without methods have no signature to compare with.
            let info = file.model_info().filter(|info| info.has_signature());
            if let Some((info, group)) = info.zip(group) {
                DeclaredModel::new(&file.file.reference, info, group).compare(&mut mismatches);
            }
        }
    }
    mismatches
}

/// A model and the methods declared for it.
struct DeclaredModel<'a> {
    file: &'a str,
    info: &'a ModelInfo,
    group: &'a MethodGroup,
    by_name: HashMap<&'a str, &'a Method>,
}

impl<'a> DeclaredModel<'a> {
    fn new(file: &'a str, info: &'a ModelInfo, group: &'a MethodGroup) -> Self {
        // The first method of a repeated name wins: it is inserted last and overwrites the later
        // ones.
        let methods = info.methods.iter().rev();
        Self {
            file,
            info,
            group,
            by_name: methods.map(|method| (&*method.name, method)).collect(),
        }
    }

    fn compare(&self, out: &mut Vec<Mismatch>) {
        for declared in &self.group.methods {
            match self.method_for(declared) {
                Some(method) => compare::method(declared, method, self.file, out),
                // A placeholder has its own rule.
                None if is_placeholder(&declared.name) => {}
                None => {
                    let looked_at = self.group.methods.len() + self.info.methods.len();
                    let mismatch = self.not_in_model(declared, may_fix_tensors(out, looked_at));
                    out.push(mismatch);
                }
            }
        }
        // A wrong name also leaves a method undeclared. Both are one mistake and are reported once.
        let declared = self.group.methods.iter();
        let matched: Vec<_> = declared.map(|one| self.method_for(one)).collect();
        if matched.iter().any(Option::is_none) {
            return;
        }
        let matched: HashSet<&str> = matched.iter().flatten().map(|m| &*m.name).collect();
        for method in &self.info.methods {
            if !method.constant && !matched.contains(&*method.name) {
                let tensors = method.inputs.len() + method.outputs.len();
                let undeclared = self.undeclared(method, may_fix_tensors(out, tensors));
                out.push(undeclared);
            }
        }
    }

    /// Returns the model's method for a declaration. The only method of a file that does not name
    /// its methods matches `forward`, or the only declared name.
    fn method_for(&self, declared: &MethodSignature) -> Option<&'a Method> {
        if self.info.names_methods || self.group.methods.len() > 1 {
            self.by_name.get(&*declared.name).copied()
        } else {
            self.info.methods.first()
        }
    }

    fn not_in_model(&self, declared: &MethodSignature, may_mend: bool) -> Mismatch {
        let methods = self.info.methods.iter().filter(|method| !method.constant);
        let names = listed(methods.map(|method| format!("`{}`", method.name)));
        Mismatch {
            kind: DifferenceKind::MethodNotInModel,
            path: declared.path.clone(),
            message: format!("`{}` has no method `{}`", self.file, declared.name),
            help: Some(if names.is_empty() {
                "the file has no methods".to_owned()
            } else {
                format!("its methods: {names}")
            }),
            mend: may_mend
                .then(|| self.meant_method(declared))
                .flatten()
                .map(|name| ValueChange::RenameKey(declared.path.clone(), name)),
        }
    }

    /// Returns the method that a wrong name was probably meant for: the nearest undeclared one, or
    /// the only undeclared one if no other name is wrong.
    fn meant_method(&self, declared: &MethodSignature) -> Option<String> {
        let names: HashSet<&str> = self.group.methods.iter().map(|one| &*one.name).collect();
        let is_free = |method: &&Method| !method.constant && !names.contains(&*method.name);
        let free: Vec<&str> = self
            .info
            .methods
            .iter()
            .filter(is_free)
            .map(|method| &*method.name)
            .collect();
        let near = suggest::nearest(&declared.name, free.iter().copied());
        let is_wrong = |one: &&MethodSignature| !self.by_name.contains_key(&*one.name);
        let is_only = || self.group.methods.iter().filter(is_wrong).count() == 1;
        let only = || match free[..] {
            [only] if is_only() => Some(only),
            _ => None,
        };
        near.or_else(only).map(str::to_owned)
    }

    fn undeclared(&self, method: &Method, may_mend: bool) -> Mismatch {
        let declaration = may_mend
            .then(|| declaration::signature(method).ok())
            .flatten();
        Mismatch {
            mend: declaration.map(|value| ValueChange::Insert {
                object: self.group.path.clone(),
                key: method.name.clone(),
                value,
            }),
            kind: DifferenceKind::MethodUndeclared,
            path: self.group.path.clone(),
            message: format!(
                "`{}` has a method `{}` that is not declared",
                self.file, method.name
            ),
            help: Some(format!("declare it; its signature: {method}")),
        }
    }
}

/// Returns whether a fix with this number of tensors is within the limit, given the differences in
/// `out`.
fn may_fix_tensors(out: &[Mismatch], tensors: usize) -> bool {
    (out.len() + 1).saturating_mul(tensors) <= MAX_FIXED_TENSORS
}
