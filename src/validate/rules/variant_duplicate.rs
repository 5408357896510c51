//! `variant-duplicate`: two variants of one precision.

use std::collections::HashMap;

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// No two variants of a config have the same precision.
    ///
    /// # Why
    /// The precision is what callers choose a variant by. Of two with the same one, the second
    /// can't be asked for.
    ///
    /// # Example
    /// Two variants with `"precision": "fp32"`.
    ///
    /// # Fix
    /// Correct the precision of one, or publish it as a model or size of its own.
    PKG009 "variant-duplicate" Warning "Two variants have the same precision." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let mut first = HashMap::new();
    for variant in context.variants() {
        let Some(precision) = &variant.precision else {
            continue;
        };
        let earlier = *first.entry(precision).or_insert(variant.position);
        if earlier != variant.position {
            let anchor = Anchor::Value(variant.path.key("precision"));
            let message = format!("variant {earlier} has the precision `{precision}` already");
            let finding = RULE.meta.finding(anchor, message);
            findings.push(finding.help("callers choose a variant by its precision"));
        }
    }
}
