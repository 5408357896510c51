//! Checks the free disk space before a download.

use std::path::Path;

use crate::RemoteError;

/// Fails if fewer than `bytes` bytes are free on the disk of `directory`.
pub(super) fn check(directory: &Path, bytes: u64) -> Result<(), RemoteError> {
    match free(directory) {
        Some(free) if free < bytes => Err(RemoteError::Disk {
            path: directory.display().to_string(),
            reason: format!(
                "not enough disk space: the download needs {bytes} bytes, and {free} are free"
            ),
        }),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn free(directory: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(directory).ok()?;
    // The widths of both types differ between systems.
    let bytes = u128::from(disk.blocks_available()) * u128::from(disk.fragment_size());
    u64::try_from(bytes).ok()
}

#[cfg(not(unix))]
fn free(_directory: &Path) -> Option<u64> {
    None
}
