//! Rule `settings-invalid`: reports errors in a `pkgtool.toml`.

use pkgtool_base::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// A `pkgtool.toml` is valid TOML of at most 1 MiB and follows `schemas/pkgtool.schema.json`
    /// (`pkgtool schema settings` prints it): known keys, types, levels. The rules in it exist, its
    /// globs are valid, and its `root` is a directory. Each precision token is in one list only,
    /// counting the list that already applies. Each exception has a reason. The baseline can be
    /// read. A nested `pkgtool.toml`, or one in a package that was not given explicitly, cannot
    /// weaken the checks. It may raise levels, add to `select` and to the requirements, allow fewer
    /// licences and deny warnings.
    ///
    /// # Why
    /// A mistyped setting has no effect, and nobody notices. The valid settings of the file still
    /// apply. The publisher of a package must not decide how a project checks it. This rule cannot
    /// be disabled.
    ///
    /// # Example
    /// ```toml
    /// [severity]
    /// size-mismach = "warning"
    /// ```
    ///
    /// # Fix
    /// Follow the help line; `pkgtool rules` lists the rules.
    ///
    /// # What it does not see
    /// Globs that match nothing, and a `pkgtool.toml` that applies to no validated file.
    PKG053 "settings-invalid" Error "A `pkgtool.toml` has an error." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// Creates the finding about an error in the settings.
pub fn settings_invalid(anchor: Anchor, message: impl Into<String>) -> Finding {
    RULE.meta.finding(anchor, message)
}
