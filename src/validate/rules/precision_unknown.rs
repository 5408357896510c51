//! `precision-unknown`: a precision token that the list does not have.

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;
use crate::validate::listing::listed;
use crate::package::leftover::is_placeholder;
use crate::source::suggest;

rule! {
    /// # What it checks
    /// Every variant's precision is a token of the precision list: the one given with
    /// `--precisions`, else a `precisions.json` at the root of what is validated, else the list
    /// inside this tool.
    ///
    /// # Why
    /// Whether a variant is quantized is decided by that list alone. A token that is not in it is
    /// neither.
    ///
    /// # Example
    /// ```json
    /// { "precision": "8w4da", "file": "tiny_xnnpack_8da4w.pte" }
    /// ```
    ///
    /// # Fix
    /// Correct the token, or add it to your precision list.
    PKG008 "precision-unknown" Error "A precision token is not in the precision list." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if !context.precisions.complete {
        return;
    }
    let list = &context.precisions.list;
    for variant in context.variants() {
        let Some(token) = &variant.precision else {
            continue;
        };
        let path = variant.path.key("precision");
        if list.contains(token) || is_placeholder(token) || context.is_violated(&path) {
            continue;
        }
        let help = match suggest::nearest(token, list.tokens()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the list has: {}", listed(list.tokens())),
        };
        let message = format!("`{token}` is not in the precision list");
        findings.push(RULE.meta.finding(Anchor::Value(path), message).help(help));
    }
}
