//! Rule `findings-limit`: notes that some findings of a file were left out of the report.

use pkgtool_base::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// Nothing in the file itself. The note means that a file has more than 1000 findings, or
    /// findings with more than 16 MiB of text. The rest was left out, the least severe findings
    /// first.
    ///
    /// # Why
    /// A damaged or hostile file can have millions. A report must stay readable and small.
    ///
    /// # Example
    /// A config with 5000 unknown keys.
    ///
    /// # Fix
    /// Correct the reported findings, and validate again.
    ///
    /// # What it does not see
    /// The findings that were left out.
    PKG041 "findings-limit" Note "A file has more findings than are reported." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// Creates the note about the number of dropped findings.
pub(in crate::validate) fn findings_limit(dropped: usize) -> Finding {
    let message = format!("at least {dropped} more findings in this file were left out");
    RULE.meta.finding(Anchor::File, message).help("correct these first, then validate again")
}
