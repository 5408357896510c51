//! Where the gateway's data is, unless a user names another place.

use std::path::{Path, PathBuf};

/// The directory that was named; if it is empty, the user's own.
pub(super) fn of(named: &Path) -> Result<PathBuf, String> {
    if !named.as_os_str().is_empty() {
        return Ok(named.to_owned());
    }
    let variable = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    let base = variable("XDG_DATA_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/share")))
        .or_else(|| variable("LOCALAPPDATA"));
    match base {
        Some(base) => Ok(base.join("pkgtool")),
        None => Err("there is no HOME; name the data directory with --data-dir".to_owned()),
    }
}
