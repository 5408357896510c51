//! `precision-list-overlap`: a token on both sides of the precision list.

use std::collections::HashMap;

use crate::diagnostic::{Anchor, Applicability, Finding, Fix};
use crate::package::precision::{GROUPS, located_tokens};
use crate::package::PrecisionList;
use crate::source::{Document, JsonPath};
use crate::validate::context::Context;
use crate::validate::mend::{Mend, is_only_element};

rule! {
    /// # What it checks
    /// In a precision list, no token stands both under `quantized` and under `non_quantized`.
    ///
    /// # Why
    /// The list is the authority on which variants are quantized. A token on both sides makes the
    /// answer depend on who reads it.
    ///
    /// # Example
    /// ```json
    /// { "quantized": ["int8", "bf16"], "non_quantized": ["fp32", "bf16"] }
    /// ```
    ///
    /// # Fix
    /// Remove the token from the side where it does not belong. `pkgtool fix` does for tokens of the list
    /// inside this tool, which says where they belong.
    ///
    /// # What it does not see
    /// Whether a token stands on the right side: nothing but the list decides that.
    PKG006 "precision-list-overlap" Error fix Safe "A precision token is both quantized and not." => check
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
            let message = format!("`{token}` stands under `{quantized}` too");
            let finding = RULE.meta.finding(Anchor::Value(path), message);
            findings.push(finding.help("every token belongs to exactly one of the two arrays").fix(fix));
        }
    }
}

fn without(path: &JsonPath, document: &Document, context: &Context<'_>) -> Option<Fix> {
    let (list, _) = path.parent()?;
    // An empty side would be the next fault.
    let is_last = document.node(&list).is_none_or(is_only_element);
    let fix = (!is_last).then(|| context.fix(Applicability::Safe, &Mend::Remove(path.clone())));
    let mut fix = fix.flatten()?;
    let written = context.editor()?.text_of(document.node(path)?);
    fix.title = format!("remove {written} where it does not belong");
    Some(fix)
}
