//! `config-name`: a config that nobody finds by its name.

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// The config in a backend's directory is called `config.json`, in lower case, and not
    /// `Config.json`, `config.jsonc`, `config.json5`, `config.json.txt` or `configs.json`, nor is there a copy of it
    /// beside it, as programs name them: `config (1).json`, `config copy.json`, `config.json.bak`.
    ///
    /// # Why
    /// Applications open `config.json`. A name that works on a disk that ignores case is not found on
    /// a device or a hub.
    ///
    /// # Example
    /// `xnnpack/Config.json`.
    ///
    /// # Fix
    /// Rename the file; if it has comments, take them out. Of two keep one.
    ///
    /// # What it does not see
    /// Such a file outside directories named after a backend, and more than one in a directory. The file's content is
    /// checked once it has its name.
    PKG044 "config-name" Error "A config has another name than config.json." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// The finding about a directory that has `name` where `config.json` is looked for, or beside it.
pub(super) fn misnamed(name: &str, has_config: bool) -> Finding {
    if has_config {
        let message = format!("`{name}` stands beside config.json: applications read only one of the two");
        let finding = RULE.meta.finding(Anchor::File, message);
        return finding.help("keep the right one as `config.json`, and delete the other");
    }
    let message = format!("there is no config.json here, but `{name}`");
    let finding = RULE.meta.finding(Anchor::File, message);
    finding.help("rename it to `config.json`; names are case-sensitive, and JSON has no comments")
}
