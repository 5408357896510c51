//! The data directory.

use std::fs;
use std::io;
use std::path::Path;

use super::DatabaseError;

/// What may lie in a data directory before there is a database in it.
#[cfg(unix)]
const BEFORE_THE_DATABASE: [&str; 3] = ["gateway.toml", "lock", "retention.json"];

/// The database of a data directory.
#[cfg(unix)]
const DATABASE: &str = "pkgtool.db";

/// Makes a data directory, or has an existing one private: nobody but its owner may read what is in it, or
/// what this process writes from now on. Rejects one of another user.
pub(crate) fn own_directory(directory: &Path) -> Result<(), DatabaseError> {
    #[cfg(unix)]
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    make_directory(directory)?;
    #[cfg(unix)]
    make_private(directory)?;
    Ok(())
}

#[cfg(unix)]
fn make_private(directory: &Path) -> Result<(), DatabaseError> {
    use std::os::unix::fs::MetadataExt as _;
    let path = directory.display().to_string();
    let unusable = |reason: String| DatabaseError::ReadOnly {
        path: path.clone(),
        reason,
    };
    let found = fs::metadata(directory).map_err(|error| unusable(error.to_string()))?;
    let user = nix::unistd::Uid::effective().as_raw();
    if found.uid() != user {
        return Err(unusable(format!(
            "the data directory belongs to user {}, and this process runs as user {user}; run it as its \
             owner, or choose another directory (--data-dir)",
            found.uid()
        )));
    }
    let is_open = found.mode() & 0o077 != 0;
    if is_open && !is_data_directory(directory) {
        return Err(unusable(format!(
            "others may read the directory (mode {:04o}), and it holds other files than the tool's; choose a \
             directory of its own (--data-dir), or make this one private (chmod 700)",
            found.mode() & 0o7777
        )));
    }
    // Without the right to enter the directory nobody reached what is further below.
    let depth = if is_open { usize::MAX } else { 1 };
    let narrowed = narrow(directory, depth, user).map_err(|error| unusable(error.to_string()))?;
    if is_open {
        tracing::warn!(
            path,
            narrowed,
            "others could read the data directory; it is private now"
        );
    }
    Ok(())
}

/// Whether a directory holds a database of the tool, or nothing that is not the tool's.
#[cfg(unix)]
fn is_data_directory(directory: &Path) -> bool {
    if directory.join(DATABASE).is_file() {
        return true;
    }
    let Ok(entries) = fs::read_dir(directory) else {
        return false;
    };
    let mut names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    names.all(|name| name.is_ok_and(|name| BEFORE_THE_DATABASE.iter().any(|known| name == *known)))
}

/// Takes the rights of others from a user's files and directories, links left out. Gives how many had some.
#[cfg(unix)]
fn narrow(directory: &Path, depth: usize, user: u32) -> io::Result<usize> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let mut narrowed = 0;
    for entry in walkdir::WalkDir::new(directory).max_depth(depth) {
        // A file may go meanwhile: a server beside this command works on.
        let Ok(entry) = entry else { continue };
        let Ok(found) = entry.metadata() else {
            continue;
        };
        let mode = found.mode() & 0o7777;
        let of_others = mode & 0o077;
        if entry.path_is_symlink() || of_others == 0 || found.uid() != user {
            continue;
        }
        let private = fs::Permissions::from_mode(mode & 0o700);
        match fs::set_permissions(entry.path(), private) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => narrowed += 1,
        }
    }
    Ok(narrowed)
}

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
