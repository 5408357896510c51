//! Rule `config-missing`: reports directories that contain models but no config.

use super::config_name;
use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::package::BareDirectory;
use crate::validate::context::Context;
use crate::validate::listing::listed;

rule! {
    /// # What it checks
    /// A directory named after a backend that contains model files (`.pte`, `.onnx`, `.mlpackage`,
    /// …) has a `config.json`.
    ///
    /// # Why
    /// Without a config, applications do not find the models, and the models are not checked.
    ///
    /// # Example
    /// `vulkan/tiny_vulkan_fp16.pte` with nothing beside it.
    ///
    /// # Fix
    /// Write the config (`pkgtool schema config` prints its schema), or delete the directory.
    ///
    /// # What it does not see
    /// Directories outside the given paths, directories that are not named after a backend, and
    /// models with an unknown extension.
    PKG043 "config-missing" Warning "A backend's directory has models, but no config.json." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// Creates the finding about a directory without a config.
pub(in crate::validate) fn bare_directory(bare: &BareDirectory) -> Finding {
    if let Some(misnamed) = &bare.misnamed {
        return config_name::misnamed(misnamed, bare.has_config);
    }
    let models = listed(bare.models.iter().map(|name| format!("`{name}`")));
    let message = format!("the directory has models ({models}), but no config.json");
    let finding = RULE.meta.finding(Anchor::File, message);
    finding.help("write the config (`pkgtool schema config` prints its schema), or delete the directory")
}
