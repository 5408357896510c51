//! `baseline-stale`: an entry of a baseline for what is not found any more.

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// Each entry of the baseline (`--baseline`, or `baseline` in a `pkgtool.toml`) stands for findings
    /// that are still there, and for as many.
    ///
    /// # Why
    /// What was mended can come back unseen as long as the baseline has room for it.
    ///
    /// # Example
    /// A baseline with two findings of `file-name` in `tiny/xnnpack/config.json`, of which one was mended.
    ///
    /// # Fix
    /// Write the baseline anew: `pkgtool validate --write-baseline FILE`.
    ///
    /// # What it does not see
    /// Entries for files that were not checked in this run and are there, for rules that were not
    /// looked at, and, with `--no-model`, any.
    PKG058 "baseline-stale" Note "A baseline has entries for findings that are gone." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// The note that an entry there stands for nothing.
pub fn baseline_stale(anchor: Anchor, message: impl Into<String>) -> Finding {
    RULE.meta.finding(anchor, message)
}
