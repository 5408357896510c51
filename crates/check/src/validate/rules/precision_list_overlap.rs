//! Rule `precision-list-overlap`: reports tokens on both sides of a precision list.

use std::collections::HashMap;

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding, Fix};
use pkgtool_base::package::precision::{GROUPS, located_tokens};
use pkgtool_base::package::PrecisionList;
use pkgtool_base::source::{Document, JsonPath};
use crate::validate::context::Context;
use crate::validate::mend::{ValueChange, is_only_element};

rule! {
    /// # What it checks
    /// In a precision list, no token is both under `quantized` and under `non_quantized`.
    ///
    /// # Why
    /// The list decides which variants are quantized. With a token on both sides, the answer
    /// depends on the reader.
    ///
    /// # Example
    /// ```json
    /// { "quantized": ["int8", "bf16"], "non_quantized": ["fp32", "bf16"] }
    /// ```
    ///
    /// # Fix
    /// Remove the token from the wrong side. `pkgtool fix` does this for tokens of the built-in
    /// list, which defines their side.
    ///
    /// # What it does not see
    /// A token on the wrong side: only the list itself decides which side is right.
    PKG006 "precision-list-overlap" Error fix Safe "A precision token is on both sides of the list." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(document) = context.document().filter(|_| context.is_list) else {
        return;
    };
    let [quantized, other] = GROUPS;
    let left: HashMap<&str, JsonPath> =
        located_tokens(document, quantized).map(|(path, token)| (token, path)).collect();
    let known = PrecisionList::embedded();
    for (path, token) in located_tokens(document, other) {
        if let Some(quantized_at) = left.get(token) {
            let fix = match known.is_quantized(token) {
                Some(true) => without(&path, document, context),
                Some(false) => without(quantized_at, document, context),
                None => None,
            };
            let message = format!("`{token}` is also under `{quantized}`");
            let finding = RULE.meta.finding(Anchor::Value(path), message);
            findings.push(finding.help("every token belongs to exactly one of the two arrays").fix(fix));
        }
    }
}

fn without(path: &JsonPath, document: &Document, context: &Context<'_>) -> Option<Fix> {
    let (list, _) = path.parent()?;
    // An empty side would violate the schema.
    let is_last = document.node(&list).is_none_or(is_only_element);
    let fix = (!is_last).then(|| context.fix(Applicability::Safe, &ValueChange::Remove(path.clone())));
    let mut fix = fix.flatten()?;
    let written = context.editor()?.text_of(document.node(path)?);
    fix.title = format!("remove {written} from the wrong side");
    Some(fix)
}
