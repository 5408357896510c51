//! Disk usage and free space.

use std::path::Path;

/// Disk usage of a database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatabaseSize {
    /// Size of its files, in bytes.
    pub bytes: u64,
    /// Free bytes within the files, which are used before the files grow.
    pub reusable: u64,
}

/// Number and size of the files below a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileStats {
    /// Number of files.
    pub count: u64,
    /// Total size, in bytes.
    pub bytes: u64,
}

impl FileStats {
    /// Counts the files below a directory; zero if it does not exist. Files deleted meanwhile are
    /// skipped.
    pub fn below(directory: &Path) -> Self {
        let mut files = Self::default();
        for entry in walkdir::WalkDir::new(directory).into_iter().flatten() {
            if entry.file_type().is_file()
                && let Ok(found) = entry.metadata()
            {
                files.count += 1;
                files.bytes += found.len();
            }
        }
        files
    }
}

/// Returns the free space on the disk of a directory, in bytes; `None` if the system does not
/// report it.
#[cfg(unix)]
#[must_use]
pub fn disk_free(directory: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(directory).ok()?;
    // The widths of both differ between systems.
    let bytes = u128::from(disk.blocks_available()) * u128::from(disk.fragment_size());
    u64::try_from(bytes).ok()
}

/// Returns `None`: unsupported on this system.
#[cfg(not(unix))]
#[must_use]
pub fn disk_free(_directory: &Path) -> Option<u64> {
    None
}
