//! `settings-invalid`: a `pkgtool.toml` that does not say what its author meant.

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// A `pkgtool.toml` is TOML of at most 1 MiB and follows `schemas/pkgtool.schema.json` (`pkgtool
    /// schema settings` prints it): known keys, types, levels. The rules that it names exist, its globs
    /// can be read, its `root` is a directory, its precision tokens stand in one list only, that of the
    /// precisions in force included, and an exception has a reason. A baseline that it names can be read.
    /// A file below another one, or in a package that you did not name yourself, loosens nothing: it may
    /// raise levels, add to `select` and to what is required, allow fewer licences and deny warnings.
    ///
    /// # Why
    /// A setting that is mistyped does nothing, and nobody sees it. What can be read of the file holds
    /// all the same. Who publishes a package does not decide what a project's checks say of it. This rule
    /// cannot be switched off.
    ///
    /// # Example
    /// ```toml
    /// [severity]
    /// size-mismach = "warning"
    /// ```
    ///
    /// # Fix
    /// Do what the help line says; `pkgtool rules` lists the rules.
    ///
    /// # What it does not see
    /// Globs that match nothing, and a `pkgtool.toml` that rules nothing of what is validated.
    PKG053 "settings-invalid" Error "A `pkgtool.toml` has an error." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// The finding that settings are wrong there.
pub fn settings_invalid(anchor: Anchor, message: impl Into<String>) -> Finding {
    RULE.meta.finding(anchor, message)
}
