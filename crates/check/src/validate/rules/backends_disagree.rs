//! Rule `backends-disagree`: reports configs of one model whose model-wide fields differ between
//! backends.

use pkgtool_base::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// Configs of one model and size in sibling directories have the same `license`, `family` and
    /// `capabilities`. If they differ, the configs that deviate from the majority are reported. The
    /// `model` of two sibling backends must not differ only by a size (`llama` and `llama_1b`).
    ///
    /// # Why
    /// These are properties of the model, not of a backend. If the licence differs between two
    /// exports of the same weights, it is wrong in one of them.
    ///
    /// # Example
    /// `xnnpack/config.json` with `"license": "MIT"` and `coreml/config.json` with `"license":
    /// "Apache-2.0"`.
    ///
    /// # Fix
    /// Find out which value is right, and write it in both configs. A size belongs in `size`.
    ///
    /// # What it does not see
    /// Configs that are not validated in the same run, and models with different names. With two
    /// configs, the rule cannot decide which is right: it reports the second in the order of paths.
    PKG047 "backends-disagree" Warning "Configs of one model differ in model-wide fields." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// Creates the finding about a field with the values `(here, elsewhere)`.
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

/// Creates the finding about a `model` that is another config's `model` plus a size.
pub(in crate::validate) fn size_in_model(anchor: Anchor, here: &str, there: &str, other: &str) -> Finding {
    let message = format!("`model` is {here} here, but {there} in {other}: they differ only by a size");
    let finding = RULE.meta.finding(anchor, message);
    finding.help("write one `model` for every backend, and the size in `size`")
}
