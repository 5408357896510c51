//! `backends-disagree`: one model, told differently for each backend.

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// Configs of one model and size in directories beside each other have the same `license`,
    /// `family` and `capabilities`. Where they differ, those that say otherwise than most are named. Nor do models for
    /// two backends beside each other differ only by a size word (`llama` and `llama_1b`).
    ///
    /// # Why
    /// These are properties of the model, not of a backend. A licence that differs between two exports
    /// of the same weights is wrong in one of them.
    ///
    /// # Example
    /// `xnnpack/config.json` with `"license": "MIT"` and `coreml/config.json` with
    /// `"license": "Apache-2.0"`.
    ///
    /// # Fix
    /// Find out which is right, and write it in both. A size belongs into `size`.
    ///
    /// # What it does not see
    /// Configs that are not validated in the same run, and models that are named differently. With two
    /// configs it cannot tell which is right: the second in the order of paths is named.
    PKG047 "backends-disagree" Warning "Configs of one model differ in what is the model's." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// The finding about a field with values `(here, elsewhere)`.
pub(in crate::validate) fn backends_disagree(
    anchor: Anchor,
    key: &str,
    (here, there): (&str, &str),
    other: &str,
) -> Finding {
    let message = format!("`{key}` is {here} here, but {there} in {other}");
    let finding = RULE.meta.finding(anchor, message);
    finding.help("it is a property of the model: write the right one for every backend")
}

/// The finding about a model that is another one's name with a size.
pub(in crate::validate) fn size_in_model(anchor: Anchor, here: &str, there: &str, other: &str) -> Finding {
    let message = format!("`model` is {here} here, but {there} in {other}: they differ only by a size");
    let finding = RULE.meta.finding(anchor, message);
    finding.help("write one `model` for every backend, and the size in `size`")
}
