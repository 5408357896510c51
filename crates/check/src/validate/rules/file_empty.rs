//! Rule `file-empty`: reports referenced files of 0 bytes.

use pkgtool_base::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;
use crate::validate::files::FileState;

rule! {
    /// # What it checks
    /// No file that the config references is 0 bytes long.
    ///
    /// # Why
    /// An interrupted download, export or upload leaves an empty file.
    ///
    /// # Example
    /// `tiny_xnnpack_fp32.pte` of 0 bytes.
    ///
    /// # Fix
    /// Export or download the file again.
    ///
    /// # What it does not see
    /// Files that are nearly empty.
    PKG017 "file-empty" Error "A file that the config names is empty." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for file in &context.files {
        if let Ok(facts) = &file.facts
            && matches!(facts.state, FileState::Empty)
        {
            let anchor = Anchor::Value(file.file.path.clone());
            let message = format!("`{}` is empty (0 bytes)", file.file.reference);
            let finding = RULE.meta.finding(anchor, message);
            findings.push(finding.help("export or download the file again").about(&facts.path));
        }
    }
}
