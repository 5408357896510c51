//! `config-duplicate`: two configs of one model, size and backend.

use crate::diagnostic::{Anchor, Finding};
use crate::package::Backend;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// In one repository there is one config of a model, size and backend: none beside it, and none in
    /// the directory of another size.
    ///
    /// # Why
    /// An application that asks for the model on this backend gets one of the two, and nobody knows
    /// which.
    ///
    /// # Example
    /// `xnnpack/config.json` and `xnnpack_old/config.json`, both of `tiny` for `xnnpack`.
    ///
    /// # Fix
    /// Delete one, or correct its `model`, `size` or `backend`.
    ///
    /// # What it does not see
    /// Packages in directories of their own beside each other, which may be copies on purpose, and
    /// configs that are not validated in the same run.
    PKG049 "config-duplicate" Warning "Two configs are of one model, size and backend." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// The finding about a config that says the same as the one at `other`.
pub(in crate::validate) fn config_duplicate(
    anchor: Anchor,
    model: &str,
    backend: Backend,
    other: &str,
) -> Finding {
    let message = format!("{other} is a config of `{model}` for {backend} already");
    let finding = RULE.meta.finding(anchor, message);
    finding.help("delete one of the two, or correct its `model`, `size` or `backend`")
}
