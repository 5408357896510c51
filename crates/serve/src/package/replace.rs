//! Moves a finished package to its final directory.
//!
//! Invariant: at every moment the directory contains either the complete old package or the
//! complete new one. On systems that cannot exchange two directories in one step, it is missing for
//! a moment.

use std::fs;
use std::io;
use std::path::Path;

use crate::database::sync_path;

/// Moves a directory, already flushed to disk, to `place` and removes the old content.
pub(crate) fn replace_directory(made: &Path, place: &Path) -> io::Result<()> {
    let parent = place.parent().unwrap_or(Path::new("."));
    if place.symlink_metadata().is_ok() {
        exchange(made, place)?;
        sync_path(parent)?;
        // After the exchange, `made` contains the old package.
        fs::remove_dir_all(made)?;
    } else {
        fs::rename(made, place)?;
        sync_path(parent)?;
    }
    Ok(())
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn exchange(made: &Path, place: &Path) -> io::Result<()> {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    match renameat2(
        AT_FDCWD,
        made,
        AT_FDCWD,
        place,
        RenameFlags::RENAME_EXCHANGE,
    ) {
        Ok(()) => Ok(()),
        // The file system does not support the exchange.
        Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOSYS) => {
            exchange_in_steps(made, place)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn exchange(made: &Path, place: &Path) -> io::Result<()> {
    exchange_in_steps(made, place)
}

fn exchange_in_steps(made: &Path, place: &Path) -> io::Result<()> {
    let old = made.with_extension("old");
    if old.exists() {
        fs::remove_dir_all(&old)?;
    }
    fs::rename(place, &old)?;
    fs::rename(made, place)?;
    fs::rename(&old, made)
}
