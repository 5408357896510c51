//! Rule `exception-stale`: reports `[[exception]]` entries of a `pkgtool.toml` that hide no
//! finding.

use pkgtool_base::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// Each `[[exception]]` of a `pkgtool.toml` hides a finding, and its `until` date, if any, has
    /// not passed. After that day the exception has no effect.
    ///
    /// # Why
    /// An exception that outlives its reason hides the next problem at that place.
    ///
    /// # Example
    /// ```toml
    /// [[exception]]
    /// file = "tiny/xnnpack/config.json"
    /// rule = "size-mismatch"
    /// reason = "the file is being replaced"
    /// until = 2020-01-01
    /// ```
    ///
    /// # Fix
    /// Remove the exception, or set a later date.
    ///
    /// # What it does not see
    /// Exceptions for existing files that were not checked in this run. With `--no-model`,
    /// exceptions that hide nothing are not reported.
    PKG057 "exception-stale" Note "An exception hides nothing or has expired." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// Creates the note about an exception without effect.
pub fn exception_stale(anchor: Anchor, message: impl Into<String>) -> Finding {
    RULE.meta.finding(anchor, message)
}
