//! Rule `config-duplicate`: reports a second config of the same model, size and backend.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::package::Backend;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// A repository has only one config of each model, size and backend. Sibling directories and
    /// the directories of other sizes are searched for a second one.
    ///
    /// # Why
    /// An application that asks for the model on this backend gets an arbitrary one of the two.
    ///
    /// # Example
    /// `xnnpack/config.json` and `xnnpack_old/config.json`, both of `tiny` for `xnnpack`.
    ///
    /// # Fix
    /// Delete one, or correct its `model`, `size` or `backend`.
    ///
    /// # What it does not see
    /// Packages in separate sibling directories, which may be intended copies, and configs that are
    /// not validated in the same run.
    PKG049 "config-duplicate" Warning "Two configs describe the same model, size and backend." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// Creates the finding about a config that duplicates the one at `other`.
pub(in crate::validate) fn config_duplicate(
    anchor: Anchor,
    model: &str,
    backend: Backend,
    other: &str,
) -> Finding {
    let message = format!("{other} is already a config of `{model}` for {backend}");
    let finding = RULE.meta.finding(anchor, message);
    finding.help("delete one of the two, or correct its `model`, `size` or `backend`")
}
