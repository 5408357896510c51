//! Opens files of a package safely; all other modules open them through this one.
//!
//! Invariant: opening never blocks, whatever kind of file it is, and follows no link out of the
//! package (see `bounds`). A path without links costs one system call.

use std::cell::RefCell;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::bounds;

thread_local! {
    /// The last folder that was found to be reachable without a link.
    static DIRECT: RefCell<PathBuf> = const { RefCell::new(PathBuf::new()) };
}

/// Opens `path` for reading, without blocking on a pipe or a device.
pub(super) fn open(path: &Path) -> io::Result<File> {
    if let Some(opened) = system::open_direct(path) {
        if opened.is_ok() {
            remember_direct(path);
        }
        return opened;
    }
    system::open_real(&bounds::real(path)?)
}

/// Returns the metadata of `path` like [`fs::metadata`]; fails if a link leads out of the package.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    let found = path.symlink_metadata()?;
    if !found.is_symlink() && is_direct(path.parent().unwrap_or(path)) {
        return Ok(found);
    }
    fs::symlink_metadata(bounds::real(path)?)
}

fn remember_direct(path: &Path) {
    let Some(directory) = path.parent() else {
        return;
    };
    DIRECT.with_borrow_mut(|known| {
        if known != directory {
            known.clear();
            known.push(directory);
        }
    });
}

/// Returns whether a folder is reachable without a link. The last folder and those above it need no
/// system call.
fn is_direct(directory: &Path) -> bool {
    let is_known = directory.as_os_str().is_empty()
        || DIRECT.with_borrow(|known| known == directory || known.starts_with(directory));
    if is_known {
        return true;
    }
    let is_direct = system::is_direct(directory);
    if is_direct {
        remember_direct(&directory.join("file"));
    }
    is_direct
}

/// Returns the error for anything but a regular file.
pub(super) fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    use rustix::io::{Errno, retry_on_intr};

    use super::{not_regular, portable};

    const READ: OFlags = OFlags::RDONLY
        .union(OFlags::CLOEXEC)
        .union(OFlags::NOCTTY)
        .union(OFlags::NONBLOCK);

    /// Opens a path without links; returns `None` if it has one, or if the kernel does not support
    /// the check.
    pub(super) fn open_direct(path: &Path) -> Option<io::Result<File>> {
        match without_links(path, READ) {
            Ok(file) => Some(Ok(file)),
            // Old kernels, and the system call filters of some containers.
            Err(Errno::LOOP | Errno::NOSYS | Errno::PERM) => None,
            // A socket.
            Err(Errno::NXIO) => Some(Err(not_regular())),
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Opens a path whose links have been resolved.
    pub(super) fn open_real(path: &Path) -> io::Result<File> {
        open_direct(path).unwrap_or_else(|| portable::open_real(path))
    }

    pub(super) fn is_direct(directory: &Path) -> bool {
        without_links(
            directory,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        )
        .is_ok()
    }

    fn without_links(path: &Path, flags: OFlags) -> Result<File, Errno> {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        retry_on_intr(|| openat2(CWD, path, flags, Mode::empty(), resolve)).map(File::from)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(super) use super::portable::open_real;

    /// This system has no such call.
    pub(super) fn open_direct(_: &Path) -> Option<io::Result<File>> {
        None
    }

    pub(super) fn is_direct(_: &Path) -> bool {
        false
    }
}

mod portable {
    use std::fs::{File, Metadata, OpenOptions};
    use std::io;
    use std::path::Path;

    use super::not_regular;

    /// Opens a path whose links have been resolved, unless the file was replaced in the meantime.
    pub(super) fn open_real(path: &Path) -> io::Result<File> {
        let before = path.symlink_metadata()?;
        // Folders are never opened here, and other kinds of files could block.
        if !before.is_file() {
            return Err(not_regular());
        }
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, NONBLOCK);
        let file = options.open(path)?;
        if is_other(&before, &file.metadata()?) {
            return Err(io::Error::other(
                "the file was replaced while it was opened",
            ));
        }
        Ok(file)
    }

    #[cfg(target_os = "linux")]
    const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    /// `O_NONBLOCK` of macOS and the BSDs.
    #[cfg(all(unix, not(target_os = "linux")))]
    const NONBLOCK: i32 = 0x0004;

    #[cfg(unix)]
    fn is_other(one: &Metadata, other: &Metadata) -> bool {
        use std::os::unix::fs::MetadataExt;

        (one.dev(), one.ino()) != (other.dev(), other.ino())
    }

    #[cfg(not(unix))]
    fn is_other(one: &Metadata, other: &Metadata) -> bool {
        one.len() != other.len()
    }

    #[cfg(test)]
    mod tests {
        use super::open_real;
        use std::fs;

        #[test]
        fn opens_regular_files_only() {
            let scratch = tempfile::tempdir().expect("a directory");
            let file = scratch.path().join("file");
            fs::write(&file, "text").expect("written");
            assert!(open_real(&file).is_ok());
            assert!(open_real(scratch.path()).is_err());
            #[cfg(unix)]
            {
                let link = scratch.path().join("link");
                std::os::unix::fs::symlink(&file, &link).expect("a link");
                assert!(open_real(&link).is_err());
                assert!(open_real(std::path::Path::new("/dev/zero")).is_err());
            }
        }
    }
}
