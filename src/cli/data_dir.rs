//! The user's data directory: of the gateway, of workers, and with binaries for devices.

use std::path::{Path, PathBuf};

/// Returns the given folder, or one of this name in the user's data directory.
pub(super) fn folder(named: Option<&Path>, name: &str) -> Result<PathBuf, String> {
    match named {
        Some(folder) => Ok(folder.to_owned()),
        None => Ok(of(Path::new(""))?.join(name)),
    }
}

/// Returns the given directory, or the user's data directory if it is empty.
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
        None => Err("HOME is not set: set the data directory with --data-dir".to_owned()),
    }
}
