//! Rule `size-directory`: reports a size that differs from the size in the directory's name.

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use pkgtool_base::package::leftover::is_placeholder;
use pkgtool_base::package::size::as_token;
pub(in crate::validate) use pkgtool_base::package::size::is_size_token;
use pkgtool_base::source::JsonPath;
use crate::validate::context::Context;
use crate::validate::mend::ValueChange;

rule! {
    /// # What it checks
    /// If the directory above the backend's is named like a size (`1b`, `0_6b`, `tiny`), that name
    /// is the config's `size`.
    ///
    /// # Why
    /// People and scripts choose a size by its directory. A config copied from another size without
    /// changes gives them the wrong model's name and files.
    ///
    /// # Example
    /// `3b/xnnpack/config.json` with `"size": "1b"`.
    ///
    /// # Fix
    /// Correct the field, or rename the directory. `pkgtool fix --unsafe` corrects the field.
    ///
    /// # What it does not see
    /// A config without `size`, and directories whose name does not look like a size: those are
    /// names of models.
    PKG045 "size-directory" Warning fix Unsafe "The size differs from the size in the directory's name." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(size) = context.config.as_ref().and_then(|config| config.size.as_deref()) else {
        return;
    };
    let path = JsonPath::root().key("size");
    let above = context.absolute.parent().and_then(|above| above.file_name());
    let Some(directory) = above.and_then(|name| name.to_str()) else {
        return;
    };
    let token = as_token(directory);
    if is_placeholder(size) || context.is_violated(&path) || !is_other_size(directory, size) {
        return;
    }
    let message = format!("the size is `{size}`, but the directory is `{directory}`");
    let fix = context.fix(Applicability::Unsafe, &ValueChange::replace(path.clone(), token.as_str()));
    let finding = RULE.meta.finding(Anchor::Value(path), message).fix(fix);
    let beside = context.absolute.parent().and_then(|above| above.parent());
    let is_taken = beside.is_some_and(|beside| beside.join(size).symlink_metadata().is_ok());
    findings.push(finding.help(if is_taken {
        format!("write \"size\": \"{token}\"; `{size}/` already exists")
    } else {
        format!("write \"size\": \"{token}\", or move the package to `{size}/`")
    }));
}

/// Returns whether a directory's name is a size other than `size`.
pub(in crate::validate) fn is_other_size(directory: &str, size: &str) -> bool {
    is_size_token(directory) && as_token(directory) != size
}
