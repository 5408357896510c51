//! Declared method signatures against what model files say.
//!
//! The comparison never claims more than the file proves: a dimension of which the file says only
//! that it may be dynamic accepts both -1 and its upper bound. One fault, one mismatch: a wrong
//! count hides the tensors behind it, a wrong rank hides the sizes.

mod compare;

use super::context::{Context, Referenced};
use super::rules::is_placeholder;
use crate::diagnostic::{Anchor, Finding, RuleMeta};
use crate::model::{Method, ModelInfo};
use crate::package::{Config, MethodGroup, MethodSignature};
use crate::source::JsonPath;

/// How a declaration differs from the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The model has no such method.
    MethodNotInModel,
    /// The declaration lacks a method of the model.
    MethodUndeclared,
    /// Another number of tensors.
    Count,
    /// Another element type.
    DType,
    /// Another number of dimensions.
    Rank,
    /// Another size.
    Shape,
    /// Dynamic on one side only.
    Dynamic,
    /// Another name.
    Name,
    /// Something the config cannot say.
    Inexpressible,
}

/// A difference and where it is declared.
#[derive(Debug, Clone)]
pub(super) struct Mismatch {
    pub(super) kind: Kind,
    /// The value or, for a method, the member at fault.
    pub(super) path: JsonPath,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// All differences of a config, file by file.
pub(super) fn compare_all(config: &Config, files: &[Referenced]) -> Vec<Mismatch> {
    let mut mismatches = Vec::new();
    for file in files {
        let Some((index, info)) = file.variant.zip(file.model_info()) else {
            continue;
        };
        let Some(variant) = config.variants.get(index) else {
            continue;
        };
        if let Some(group) = variant.methods_of(&file.file) {
            let pair = Pair {
                file: &file.file.reference,
                info,
                group,
            };
            pair.compare(&mut mismatches);
        }
    }
    mismatches
}

/// A model and what is declared of it.
struct Pair<'a> {
    file: &'a str,
    info: &'a ModelInfo,
    group: &'a MethodGroup,
}

impl Pair<'_> {
    fn compare(&self, out: &mut Vec<Mismatch>) {
        for declared in &self.group.methods {
            match self.method_for(declared) {
                Some(method) => compare::method(declared, method, self.file, out),
                // A placeholder has its own rule.
                None if is_placeholder(&declared.name) => {}
                None => out.push(self.not_in_model(declared)),
            }
        }
        // A wrong name and a missing one are the same slip, told once.
        let declared = self.group.methods.iter();
        if declared
            .map(|one| self.method_for(one))
            .any(|found| found.is_none())
        {
            return;
        }
        for method in &self.info.methods {
            let declared = self.group.methods.iter();
            let mut matched = declared.filter_map(|declared| self.method_for(declared));
            if !method.constant && !matched.any(|found| found.name == method.name) {
                out.push(self.undeclared(method));
            }
        }
    }

    /// The model's method that a declaration means. A file that does not name its methods has one,
    /// which answers to `forward` or to the only declared name, whatever that is.
    fn method_for(&self, declared: &MethodSignature) -> Option<&Method> {
        if self.info.names_methods || self.group.methods.len() > 1 {
            self.info.method(&declared.name)
        } else {
            self.info.methods.first()
        }
    }

    fn not_in_model(&self, declared: &MethodSignature) -> Mismatch {
        let methods = self.info.methods.iter().filter(|method| !method.constant);
        let names: Vec<String> = methods.map(|method| format!("`{}`", method.name)).collect();
        Mismatch {
            kind: Kind::MethodNotInModel,
            path: declared.path.clone(),
            message: format!("`{}` has no method `{}`", self.file, declared.name),
            help: Some(if names.is_empty() {
                "the file has no methods".to_owned()
            } else {
                format!("its methods: {}", names.join(", "))
            }),
        }
    }

    fn undeclared(&self, method: &Method) -> Mismatch {
        Mismatch {
            kind: Kind::MethodUndeclared,
            path: self.group.path.clone(),
            message: format!(
                "`{}` has a method `{}` that is not declared",
                self.file, method.name
            ),
            help: Some(format!("declare it; its signature: {method}")),
        }
    }
}

/// Adds a finding of `rule` for each difference of this kind.
pub(super) fn findings_of(
    kind: Kind,
    rule: &'static RuleMeta,
    context: &Context<'_>,
    findings: &mut Vec<Finding>,
) {
    for mismatch in context.mismatches.iter().filter(|m| m.kind == kind) {
        let path = mismatch.path.clone();
        let anchor = match kind {
            Kind::MethodNotInModel | Kind::MethodUndeclared => Anchor::Key(path),
            _ => Anchor::Value(path),
        };
        let finding = rule.finding(anchor, &mismatch.message);
        findings.push(match &mismatch.help {
            Some(help) => finding.help(help),
            None => finding,
        });
    }
}
