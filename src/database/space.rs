//! How much room there is, and how much is taken.

use std::path::Path;

/// What a database takes on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of its files.
    pub bytes: u64,
    /// How many of them hold nothing and are used before it grows.
    pub reusable: u64,
}

/// Files below a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Files {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Files {
    /// Counts them; none if there is no such directory. What goes meanwhile is not counted.
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

/// Bytes that may still be written to the disk of a directory; `None` where the system does not say.
#[cfg(unix)]
#[must_use]
pub fn disk_free(directory: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(directory).ok()?;
    // The widths of both differ between systems.
    let bytes = u128::from(disk.blocks_available()) * u128::from(disk.fragment_size());
    u64::try_from(bytes).ok()
}

/// Bytes that may still be written to the disk of a directory; `None` where the system does not say.
#[cfg(not(unix))]
#[must_use]
pub fn disk_free(_directory: &Path) -> Option<u64> {
    None
}
