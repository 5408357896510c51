//! Rule `variants-disagree`: reports model files of one model that have different interfaces.

use std::sync::Arc;

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::source::hashed::Map;
use super::variant_duplicate::are_parts;
use crate::validate::context::Context;
use crate::validate::interfaces::{Relation, InterfaceSide, difference};
use crate::validate::references::ReferencedFile;

rule! {
    /// # What it checks
    /// Model files of one model have the same interface, as the files themselves record it:
    /// methods, numbers of tensors, dtypes, ranks and sizes. The variants of a config are compared
    /// with its first variant, component by component. The first variants of configs for other
    /// backends, in sibling directories, are compared with the first of those.
    ///
    /// Differences that a precision or a backend implies are accepted: floats of another size,
    /// small integers for the inputs and outputs of a quantised variant, and a dimension that one
    /// file fixes to a size that the other accepts. Between backends, integers of another size and
    /// additional methods are accepted too.
    ///
    /// # Why
    /// An application picks a variant and calls it like any other. A variant that was exported at
    /// another size, in another order or from another revision of the model fails there, or
    /// produces wrong results.
    ///
    /// # Example
    /// `forward` takes `float32[1, 3, 224, 224]` in the fp32 file and `float32[1, 3, 256, 256]` in
    /// the int8 file.
    ///
    /// # Fix
    /// Export the variant again with the same example inputs. If it is another model, give it a
    /// config of its own.
    ///
    /// # What it does not see
    /// Names of tensors, bounds of dynamic dimensions, and inputs that are not tensors. Between
    /// backends, two things are not compared. Models for `text-generation` differ in where they
    /// keep their caches and how many tokens a call takes. The outputs of embedding models differ
    /// too, because some backends pool and others leave it to the application.
    PKG051 "variants-disagree" Warning "Model files of one model have different interfaces." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let mut first: Map<Option<&str>, (&ReferencedFile, Option<&str>, usize)> = Map::default();
    for (index, variant) in context.variants().iter().enumerate() {
        let precision = variant.precision.as_deref();
        for file in context.files_of(index) {
            let Some(info) = file.model_info() else {
                continue;
            };
            let component = file.file.component.as_deref();
            let Some((other, their_precision, at)) = first.get(&component) else {
                first.insert(component, (file, precision, index));
                continue;
            };
            // Components that were written as variants have their own finding.
            if are_parts(context, *at, index) {
                continue;
            }
            let is_same = match (&file.facts, &other.facts) {
                (Ok(a), Ok(b)) => Arc::ptr_eq(a, b),
                _ => true,
            };
            let Some(known) = other.model_info().filter(|_| !is_same) else {
                continue;
            };
            let list = &context.precisions.list;
            // An unknown token may mean a quantised precision.
            let may_be = |token: Option<&str>| {
                token.and_then(|token| list.is_quantized(token)) != Some(false)
            };
            let quantised = may_be(precision) || may_be(*their_precision);
            let (here, there) = (&file.file.reference, &other.file.reference);
            let one = InterfaceSide { name: &format!("`{here}`"), info };
            let other = InterfaceSide { name: &format!("`{there}`"), info: known };
            if let Some(text) = difference(one, other, Relation::Precisions { quantised }) {
                findings.push(variants_disagree(Anchor::Value(file.file.path.clone()), text));
            }
        }
    }
}

/// Creates the finding about a file with a different interface.
pub(in crate::validate) fn variants_disagree(anchor: Anchor, text: String) -> Finding {
    let finding = RULE.meta.finding(anchor, text);
    finding.help("export both with the same example inputs; `pkgtool inspect` shows each")
}
