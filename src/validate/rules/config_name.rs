//! `config-name`: a config that nobody finds by its name.

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// The config in a backend's directory is called `config.json`, in lower case, and not
    /// `Config.json`, `config.jsonc`, `config.json5`, `config.json.txt` or `configs.json`.
    ///
    /// # Why
    /// Applications open `config.json`. A name that works on a disk that ignores case is not found on
    /// a device or a hub.
    ///
    /// # Example
    /// `xnnpack/Config.json`.
    ///
    /// # Fix
    /// Rename the file; if it has comments, take them out.
    ///
    /// # What it does not see
    /// Such a file beside a `config.json`, or outside directories named after a backend. The file's
    /// content is checked once it has its name.
    PKG044 "config-name" Error "A config has another name than config.json." => check
}

fn check(_: &Context<'_>, _: &mut Vec<Finding>) {}

/// The finding about a directory that has `name` where `config.json` is looked for.
pub(super) fn misnamed(name: &str) -> Finding {
    let message = format!("there is no config.json here, but `{name}`");
    let finding = RULE.meta.finding(Anchor::File, message);
    finding.help("rename it to `config.json`; names are case-sensitive, and JSON has no comments")
}
