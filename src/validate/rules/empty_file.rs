//! `empty-file`: a config or list without content.

use crate::diagnostic::{Anchor, Finding};
use crate::package::LoadFault;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// The file has content: it is not 0 bytes long and not white space alone.
    ///
    /// # Why
    /// An empty `config.json` in a backend directory is what an interrupted upload or a failed
    /// generator leaves. Nothing can be loaded from it.
    ///
    /// # Example
    /// `xnnpack/config.json` of 0 bytes.
    ///
    /// # Fix
    /// Write the config again, or delete the file if the backend is not published.
    ///
    /// # What it does not see
    /// Files that are no config and no precision list.
    PKG001 "empty-file" Error "The file is empty." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if context.fault() == Some(&LoadFault::Empty) {
        let size = context.loaded.text.len();
        let message = match size {
            0 => "the file is empty (0 bytes)".to_owned(),
            _ => format!("the file has only white space ({size} bytes)"),
        };
        findings.push(
            RULE.meta
                .finding(Anchor::File, message)
                .help("write the file again, or delete it if nothing is published here"),
        );
    }
}
