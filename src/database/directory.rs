//! The data directory.

use std::fs;
use std::io;
use std::path::Path;

use super::DatabaseError;

/// Makes a directory that only its owner may read.
pub(crate) fn make_directory(directory: &Path) -> Result<(), DatabaseError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(directory)
        .map_err(|error| DatabaseError::ReadOnly {
            path: directory.display().to_string(),
            reason: error.to_string(),
        })
}

/// Waits until everything in a directory is on the disk, and the directory itself: it comes after what is
/// in it.
pub(crate) fn sync_tree(directory: &Path) -> io::Result<()> {
    for entry in walkdir::WalkDir::new(directory).contents_first(true) {
        sync_path(entry.map_err(io::Error::from)?.path())?;
    }
    Ok(())
}

/// Waits until a file is on the disk, or what a directory lists, where systems have that.
pub(crate) fn sync_path(path: &Path) -> io::Result<()> {
    let is_directory = path.is_dir();
    if is_directory && !cfg!(unix) {
        return Ok(());
    }
    fs::File::options()
        .read(true)
        .write(!is_directory)
        .open(path)?
        .sync_all()
}

/// Bytes that are free where a directory is, for those who are not the system's administrator; `None` if
/// the system does not tell.
#[cfg(unix)]
pub fn free_bytes(directory: &Path) -> Option<u64> {
    let found = nix::sys::statvfs::statvfs(directory).ok()?;
    // The types of both differ between systems: on some they are narrower.
    #[allow(clippy::useless_conversion)]
    let (blocks, size) = (
        u64::from(found.blocks_available()),
        u64::from(found.fragment_size()),
    );
    blocks.checked_mul(size)
}

/// Bytes that are free where a directory is: not known here.
#[cfg(not(unix))]
pub fn free_bytes(_directory: &Path) -> Option<u64> {
    None
}
