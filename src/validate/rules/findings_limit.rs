//! `findings-limit`: more findings in one file than anybody reads.

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// Nothing of its own: it says that a file has more than 1000 findings, or findings with
    /// more than 16 MiB of text, and that the rest, the least severe first, was left out.
    ///
    /// # Why
    /// A damaged or hostile file can have millions. A report must stay readable and small.
    ///
    /// # Example
    /// A config with 5000 unknown keys.
    ///
    /// # Fix
    /// Correct what is reported, and validate again.
    ///
    /// # What it does not see
    /// What was left out.
    PKG041 "findings-limit" Note "A file has more findings than are reported." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// The note that so many findings were left out.
pub(in crate::validate) fn findings_limit(dropped: usize) -> Finding {
    let message = format!("at least {dropped} more findings in this file were left out");
    RULE.meta.finding(Anchor::File, message).help("correct these first, then validate again")
}
