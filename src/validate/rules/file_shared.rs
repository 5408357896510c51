//! `file-shared`: one model file in two variants.

use std::collections::HashMap;

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// No model file is named twice: by two variants, or as two components of one.
    ///
    /// # Why
    /// Variants differ in precision; a file has one. Usually a line was copied and the name not
    /// changed. Components that are data (`tokenizer.json`) may be shared.
    ///
    /// # Example
    /// Variants `fp32` and `int8` that both name `tiny_xnnpack_fp32.pte`.
    ///
    /// # Fix
    /// Name each variant's own file. If a component really is the same for several precisions,
    /// nothing is wrong.
    PKG021 "file-shared" Warning "Two variants name the same model file." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let mut first = HashMap::new();
    let position = |variant: usize| context.variants()[variant].position;
    for file in context.files.iter().filter(|file| file.is_model) {
        let Some((facts, variant)) = file.facts.as_ref().ok().zip(file.variant) else {
            continue;
        };
        let earlier = *first.entry(facts.path.clone()).or_insert((variant, &file.file.path));
        if earlier.1 != &file.file.path {
            let anchor = Anchor::Value(file.file.path.clone());
            let reference = &file.file.reference;
            let (message, help) = if earlier.0 == variant {
                let message = format!("another component of this variant is `{reference}` already");
                (message, "name each component's own file")
            } else {
                let message = format!("variant {} names `{reference}` already", position(earlier.0));
                (message, "name this variant's own file")
            };
            findings.push(RULE.meta.finding(anchor, message).help(help));
        }
    }
}
