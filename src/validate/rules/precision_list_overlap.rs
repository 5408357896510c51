//! `precision-list-overlap`: a token on both sides of the precision list.

use std::collections::HashSet;

use crate::diagnostic::{Anchor, Finding};
use crate::package::precision::{GROUPS, located_tokens};
use crate::validate::context::Context;

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
    /// Remove the token from the side where it does not belong.
    ///
    /// # What it does not see
    /// Whether a token stands on the right side: nothing but the list decides that.
    PKG006 "precision-list-overlap" Error "A precision token is both quantized and not." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(document) = context.document().filter(|_| context.is_list) else {
        return;
    };
    let [quantized, other] = GROUPS;
    let left: HashSet<&str> = located_tokens(document, quantized).map(|(_, t)| t).collect();
    for (path, token) in located_tokens(document, other) {
        if left.contains(token) {
            let message = format!("`{token}` stands under `{quantized}` too");
            let finding = RULE.meta.finding(Anchor::Value(path), message);
            findings.push(finding.help("every token belongs to exactly one of the two arrays"));
        }
    }
}
