//! `variants-disagree`: files of one model that are called in different ways.

use std::sync::Arc;

use crate::diagnostic::{Anchor, Finding};
use crate::source::hashed::Map;
use super::variant_duplicate::are_parts;
use crate::validate::context::Context;
use crate::validate::interfaces::{Between, Side, difference};
use crate::validate::references::Referenced;

rule! {
    /// # What it checks
    /// Model files of one model have one interface, as the files themselves give it: methods, numbers of tensors,
    /// dtypes, ranks and sizes. Variants of a config are held against the first of
    /// them, component by component; the first variants of configs for other backends, in directories beside each
    /// other, against the first of those.
    ///
    /// What a precision or a backend brings with it is no difference: floats of another size, small integers for
    /// the inputs and outputs of a quantised variant, a dimension that only one file fixes, to a size that the
    /// other takes; between backends also integers of another size, and methods that only one of them has.
    ///
    /// # Why
    /// An application picks a variant and calls it like any other. One that was exported at another size, in
    /// another order or from another revision of the model fails there, or gives nonsense.
    ///
    /// # Example
    /// `forward` takes `float32[1, 3, 224, 224]` in the fp32 file and `float32[1, 3, 256, 256]` in the int8 file.
    ///
    /// # Fix
    /// Export the variant again with the same example inputs; or, if it is another model, give it a config of its
    /// own.
    ///
    /// # What it does not see
    /// Names of tensors, bounds of dynamic dimensions, inputs that are no tensors. Between backends, models for
    /// `text-generation`: where their caches are kept, and how many tokens a call takes, is each backend's own;
    /// and outputs of embedding models, which some pool and some leave to the application.
    PKG051 "variants-disagree" Warning "Model files of one model have different interfaces." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let mut first: Map<Option<&str>, (&Referenced, Option<&str>, usize)> = Map::default();
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
            // A token that is not known may mean quantised.
            let may_be = |token: Option<&str>| {
                token.and_then(|token| list.is_quantized(token)) != Some(false)
            };
            let quantised = may_be(precision) || may_be(*their_precision);
            let (here, there) = (&file.file.reference, &other.file.reference);
            let one = Side { name: &format!("`{here}`"), info };
            let other = Side { name: &format!("`{there}`"), info: known };
            if let Some(text) = difference(one, other, Between::Precisions { quantised }) {
                findings.push(variants_disagree(Anchor::Value(file.file.path.clone()), text));
            }
        }
    }
}

/// The finding about a file whose interface is another one.
pub(in crate::validate) fn variants_disagree(anchor: Anchor, text: String) -> Finding {
    let finding = RULE.meta.finding(anchor, text);
    finding.help("export both with the same example inputs; `pkgtool inspect` shows each")
}
