//! `config-foreign`: another library's config in a backend's directory.

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// A `config.json` that a walk meets in a directory named after a backend is a package's. One
    /// that has none of the format's keys, or another library's marks (`model_type`,
    /// `architectures`, `_class_name`, …), is passed over with this note.
    ///
    /// # Why
    /// `mlx/` and `coreml/` are names that other libraries use too. Their configs are no packages,
    /// and silence would look like approval.
    ///
    /// # Example
    /// `mlx/config.json` with `"model_type": "llama"`, for MLX's own loader.
    ///
    /// # Fix
    /// Nothing, if it is meant. If a package is published here, its config needs another directory:
    /// both are called `config.json`.
    ///
    /// # What it does not see
    /// A file that is named on the command line is checked as a config, whatever it holds.
    PKG042 "config-foreign" Note "A config.json in a backend's directory is another library's." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// The note about a config of `owner`.
pub(in crate::validate) fn config_foreign(owner: &str) -> Finding {
    let message = format!("this config.json is no package config; it looks like one of {owner}");
    let finding = RULE.meta.finding(Anchor::File, message);
    finding.help("nothing to do if that is meant; a package config has `backend` and `variants`")
}
