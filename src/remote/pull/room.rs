//! Whether the disk has room for what is to be fetched.

use std::path::Path;

use crate::remote::RemoteError;

/// Fails if fewer than `bytes` are free on the disk of `directory`.
pub(super) fn check(directory: &Path, bytes: u64) -> Result<(), RemoteError> {
    match free(directory) {
        Some(free) if free < bytes => Err(RemoteError::Disk {
            path: directory.display().to_string(),
            reason: format!(
                "{bytes} bytes are to be fetched and the disk has room for {free}; none of them was fetched"
            ),
        }),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn free(directory: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(directory).ok()?;
    // The widths of both differ between systems.
    let bytes = u128::from(disk.blocks_available()) * u128::from(disk.fragment_size());
    u64::try_from(bytes).ok()
}

#[cfg(not(unix))]
fn free(_directory: &Path) -> Option<u64> {
    None
}
