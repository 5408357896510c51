//! The data directory: its permissions, durability and free space.

use std::fs;
use std::io;
use std::path::Path;

use super::{DatabaseError, DatabaseResult};

/// Files that may be in a data directory before it has a database.
#[cfg(unix)]
const BEFORE_THE_DATABASE: [&str; 4] = ["gateway.toml", "lock", "retention.json", SERVER_NAME];

/// File with the name of the server in a data directory.
const SERVER_NAME: &str = "server";

/// File name of the database in a data directory.
#[cfg(unix)]
const DATABASE: &str = "pkgtool.db";

/// Creates a data directory, or makes an existing one private: only its owner may read it and the
/// files that this process writes later. Rejects a directory of another user.
pub(crate) fn own_directory(directory: &Path) -> DatabaseResult<()> {
    #[cfg(unix)]
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    make_directory(directory)?;
    #[cfg(unix)]
    make_private(directory)?;
    Ok(())
}

#[cfg(unix)]
fn make_private(directory: &Path) -> DatabaseResult<()> {
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
            "other users may read the directory (mode {:04o}), and it contains files of other programs; choose a \
             directory of its own (--data-dir), or make this one private (chmod 700)",
            found.mode() & 0o7777
        )));
    }
    // If others could not enter the directory, they could not reach anything below it.
    let depth = if is_open { usize::MAX } else { 1 };
    let narrowed = narrow(directory, depth, user).map_err(|error| unusable(error.to_string()))?;
    if is_open {
        tracing::warn!(
            path,
            narrowed,
            "other users could read the data directory; its permissions are now private"
        );
    }
    Ok(())
}

/// Returns `true` if a directory contains the tool's database, or only files of the tool.
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

/// Removes the rights of others from a user's files and directories, except links. Returns how many
/// had any.
#[cfg(unix)]
fn narrow(directory: &Path, depth: usize, user: u32) -> io::Result<usize> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let mut narrowed = 0;
    for entry in walkdir::WalkDir::new(directory).max_depth(depth) {
        // A file may be deleted meanwhile by a running server.
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

/// Creates a directory that only its owner may read.
pub(crate) fn make_directory(directory: &Path) -> DatabaseResult<()> {
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

/// Returns the name of the server with this data directory, which it keeps there: the same after a restart.
pub fn server_name(directory: &Path) -> DatabaseResult<String> {
    let file = directory.join(SERVER_NAME);
    let fault = |error: io::Error| DatabaseError::ReadOnly {
        path: file.display().to_string(),
        reason: error.to_string(),
    };
    match fs::read_to_string(&file) {
        Ok(name) if !name.trim().is_empty() => return Ok(name.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fault(error)),
        _ => {}
    }
    let name = uuid::Uuid::now_v7().to_string();
    fs::write(&file, &name).map_err(fault)?;
    Ok(name)
}

/// Flushes everything in a directory to the disk, then the directory itself.
pub(crate) fn sync_tree(directory: &Path) -> io::Result<()> {
    for entry in walkdir::WalkDir::new(directory).contents_first(true) {
        sync_path(entry.map_err(io::Error::from)?.path())?;
    }
    Ok(())
}

/// Flushes a file or the entries of a directory to the disk, where the system supports it.
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

/// Returns the free space in a directory for users other than the administrator, in bytes; `None`
/// if the system does not report it.
#[cfg(unix)]
pub fn free_bytes(directory: &Path) -> Option<u64> {
    let found = nix::sys::statvfs::statvfs(directory).ok()?;
    // The types of both differ between systems.
    #[allow(clippy::useless_conversion)]
    let (blocks, size) = (
        u64::from(found.blocks_available()),
        u64::from(found.fragment_size()),
    );
    blocks.checked_mul(size)
}

/// Returns `None`: unsupported on this system.
#[cfg(not(unix))]
pub fn free_bytes(_directory: &Path) -> Option<u64> {
    None
}
