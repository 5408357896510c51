//! Rule `empty-file`: reports configs and precision lists without content.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::package::LoadFault;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// The file has content: it is longer than 0 bytes and not only white space.
    ///
    /// # Why
    /// An interrupted upload or a failed generator leaves an empty `config.json` in a backend
    /// directory. Nothing can be loaded from it.
    ///
    /// # Example
    /// `xnnpack/config.json` of 0 bytes.
    ///
    /// # Fix
    /// Write the config again, or delete the file if the backend is not published.
    ///
    /// # What it does not see
    /// Files other than configs and precision lists.
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
