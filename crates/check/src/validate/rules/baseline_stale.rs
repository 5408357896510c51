//! Rule `baseline-stale`: reports baseline entries whose findings no longer exist.

use pkgtool_base::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// Each entry of the baseline (`--baseline`, or `baseline` in a `pkgtool.toml`) matches
    /// findings that still exist, in the recorded number.
    ///
    /// # Why
    /// A stale entry hides the problem again if it comes back.
    ///
    /// # Example
    /// A baseline with two findings of `file-name` in `tiny/xnnpack/config.json`, of which one was
    /// fixed.
    ///
    /// # Fix
    /// Write the baseline again: `pkgtool validate --write-baseline FILE`.
    ///
    /// # What it does not see
    /// Entries for existing files that were not checked in this run, and for disabled rules. With
    /// `--no-model`, no entry is reported.
    PKG058 "baseline-stale" Note "A baseline has entries for findings that are gone." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// Creates the note about a stale baseline entry.
pub fn baseline_stale(anchor: Anchor, message: impl Into<String>) -> Finding {
    RULE.meta.finding(anchor, message)
}
