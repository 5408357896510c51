//! Rule `config-name`: reports configs whose file name is not exactly `config.json`.

use pkgtool_base::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// The config in a backend's directory is called `config.json`, in lower case. Names such as
    /// `Config.json`, `config.jsonc`, `config.json5`, `config.json.txt` or `configs.json` are
    /// reported. Copies beside it, as programs name them, are reported too: `config (1).json`,
    /// `config copy.json`, `config.json.bak`.
    ///
    /// # Why
    /// Applications open `config.json`. Another case works on a case-insensitive disk, but not on a
    /// device or a hub.
    ///
    /// # Example
    /// `xnnpack/Config.json`.
    ///
    /// # Fix
    /// Rename the file and remove any comments. Keep only one of two.
    ///
    /// # What it does not see
    /// Such files outside directories named after a backend, and more than one in a directory. The
    /// file's content is checked once it has the right name.
    PKG044 "config-name" Error "A config is not named config.json." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// Creates the finding about a file `name` in place of `config.json`, or beside it.
pub(super) fn misnamed(name: &str, has_config: bool) -> Finding {
    if has_config {
        let message = format!("`{name}` is beside config.json: applications read only one of the two");
        let finding = RULE.meta.finding(Anchor::File, message);
        return finding.help("keep the right one as `config.json`, and delete the other");
    }
    let message = format!("the config is named `{name}` instead of config.json");
    let finding = RULE.meta.finding(Anchor::File, message);
    finding.help("rename it to `config.json`; names are case-sensitive, and JSON has no comments")
}
