//! `exception-stale`: an exception of a `pkgtool.toml` for what is not found any more.

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// Each `[[exception]]` of a `pkgtool.toml` hides a finding, and its `until`, if it has one, is not
    /// past: after that day it hides nothing.
    ///
    /// # Why
    /// An exception that outlives its reason hides the next fault at that place.
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
    /// Remove the exception, or give it a later day.
    ///
    /// # What it does not see
    /// Exceptions for files that were not checked in this run and are there, and, with `--no-model`, any
    /// that hide nothing.
    PKG057 "exception-stale" Note "An exception hides nothing, or its day is past." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// The note that an exception there does nothing.
pub fn exception_stale(anchor: Anchor, message: impl Into<String>) -> Finding {
    RULE.meta.finding(anchor, message)
}
