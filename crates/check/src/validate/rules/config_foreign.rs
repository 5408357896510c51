//! Rule `config-foreign`: notes another library's config in a backend's directory.

use pkgtool_base::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// A `config.json` that is found in a directory named after a backend belongs to a package. If
    /// it has none of the format's keys, or has the keys of another library (`model_type`,
    /// `architectures`, `_class_name`, …), it is skipped with this note.
    ///
    /// # Why
    /// Other libraries also use directory names such as `mlx/` and `coreml/`. Their configs are not
    /// package configs. Skipping them without a note would look like approval.
    ///
    /// # Example
    /// `mlx/config.json` with `"model_type": "llama"`, for MLX's own loader.
    ///
    /// # Fix
    /// Nothing, if this is intended. If a package is published here, its config needs another
    /// directory, because both are called `config.json`.
    ///
    /// # What it does not see
    /// A file given on the command line is checked as a config, whatever its content.
    PKG042 "config-foreign" Note "A config.json in a backend's directory belongs to another library." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// Creates the note about a config of the library `owner`.
pub(in crate::validate) fn config_foreign(owner: &str) -> Finding {
    let message = format!("this config.json is not a package config; it looks like one of {owner}");
    let finding = RULE.meta.finding(Anchor::File, message);
    finding.help("nothing to do if this is intended; a package config has `backend` and `variants`")
}
