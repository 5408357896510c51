//! `size-directory`: a size that the directory contradicts.

use crate::diagnostic::{Anchor, Finding};
use crate::package::leftover::is_placeholder;
use crate::source::JsonPath;
use crate::validate::context::Context;

/// Words for sizes that are no numbers.
const WORDS: [&str; 16] = [
    "nano", "micro", "mini", "tiny", "small", "base", "medium", "large", "xlarge", "xs", "s", "m", "l",
    "xl", "xxl", "n",
];

rule! {
    /// # What it checks
    /// Where the directory above the backend's is named like a size (`1b`, `0_6b`, `tiny`), it is the
    /// config's `size`.
    ///
    /// # Why
    /// People and scripts choose a size by its directory. A config that was copied from another size
    /// and not changed gives them the wrong model's name and files.
    ///
    /// # Example
    /// `3b/xnnpack/config.json` with `"size": "1b"`.
    ///
    /// # Fix
    /// Correct the field, or rename the directory.
    ///
    /// # What it does not see
    /// A config without `size`, and directories whose name is not like a size: those are models' names.
    PKG045 "size-directory" Warning "The size is not the one that the directory says." => check
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
    let finding = RULE.meta.finding(Anchor::Value(path), message);
    findings.push(finding.help(format!(
        "write \"size\": \"{token}\", or move the package to `{size}/`"
    )));
}

/// Whether a directory's name says a size, and another one.
pub(in crate::validate) fn is_other_size(directory: &str, size: &str) -> bool {
    is_size_token(directory) && as_token(directory) != size
}

/// Whether a directory's name says a size: a number with `k`, `m` or `b`, or a usual word.
pub(in crate::validate) fn is_size_token(name: &str) -> bool {
    let token = as_token(name);
    if WORDS.contains(&token.as_str()) {
        return true;
    }
    let Some(number) = token.strip_suffix(['k', 'm', 'b']) else {
        return false;
    };
    let mut parts = number.split('_');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    parts.clone().count() <= 2 && parts.all(is_number)
}

fn as_token(name: &str) -> String {
    name.to_ascii_lowercase().replace(['-', '.'], "_")
}

#[cfg(test)]
mod tests {
    use super::is_size_token;

    #[test]
    fn sizes_are_told_from_names() {
        for size in ["1b", "0_6b", "0.6B", "270m", "tiny", "XL"] {
            assert!(is_size_token(size), "{size}");
        }
        for name in ["llama", "whisper-tiny", "b", "000", "qwen3_0_6b", "v2", "1_2_3b"] {
            assert!(!is_size_token(name), "{name}");
        }
    }
}
