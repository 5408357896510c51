//! `config-missing`: models without a config.

use super::config_name;
use crate::diagnostic::{Anchor, Finding};
use crate::package::Bare;
use crate::validate::context::Context;
use crate::validate::listing::listed;

rule! {
    /// # What it checks
    /// A directory named after a backend that has model files (`.pte`, `.onnx`, `.mlpackage`, …) has a
    /// `config.json`.
    ///
    /// # Why
    /// Without it no application finds the models, and nothing about them is checked.
    ///
    /// # Example
    /// `vulkan/tiny_vulkan_fp16.pte` with nothing beside it.
    ///
    /// # Fix
    /// Write the config (`pkgtool schema config` prints its schema), or delete the directory.
    ///
    /// # What it does not see
    /// Only directories below the paths that were given, and only those named after a backend.
    /// Models whose extension is not known here do not count.
    PKG043 "config-missing" Warning "A backend's directory has models, but no config.json." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// The finding about a directory without a config.
pub(in crate::validate) fn bare_directory(bare: &Bare) -> Finding {
    if let Some(misnamed) = &bare.misnamed {
        return config_name::misnamed(misnamed, bare.has_config);
    }
    let models = listed(bare.models.iter().map(|name| format!("`{name}`")));
    let message = format!("the directory has models ({models}), but no config.json");
    let finding = RULE.meta.finding(Anchor::File, message);
    finding.help("write the config (`pkgtool schema config` prints its schema), or delete the directory")
}
