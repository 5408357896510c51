//! A simulated full disk: writes of SQLite into one directory fail with the error of a full file
//! system.
//!
//! SQLite allows tests to replace its system calls. Writes to all other files pass unchanged.

use std::ffi::{c_int, c_void};
use std::fs::{self, File};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use nix::errno::Errno;
use rusqlite::ffi;

/// The watched directory, and the number of bytes by which its files may still grow.
static DISK: Mutex<Option<(PathBuf, u64)>> = Mutex::new(None);

/// A directory on a simulated disk of limited size.
pub(super) struct FullDisk {
    directory: PathBuf,
}

impl FullDisk {
    /// Watches a directory, without a limit at first. Only one test at a time has such a disk.
    pub(super) fn of(directory: &Path) -> Self {
        static REPLACED: Once = Once::new();
        REPLACED.call_once(replace_write);
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Limits the free space to this many bytes.
    pub(super) fn leave(&self, bytes: u64) {
        *disk() = Some((self.directory.clone(), bytes));
    }

    /// Removes the limit.
    #[expect(clippy::unused_self, reason = "there is one disk at a time")]
    pub(super) fn make_room(&self) {
        *disk() = None;
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        self.make_room();
    }
}

fn disk() -> MutexGuard<'static, Option<(PathBuf, u64)>> {
    DISK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(
    unsafe_code,
    reason = "SQLite takes its new system call through a C interface"
)]
fn replace_write() {
    // SAFETY: the default file system lives as long as the process, and `write` has the type and
    // the behaviour of the system call that it replaces.
    unsafe {
        let files = ffi::sqlite3_vfs_find(std::ptr::null());
        let set = (*files).xSetSystemCall.expect("Unix's has it");
        let function = write as unsafe extern "C" fn(c_int, *const c_void, usize, i64) -> isize;
        let function: unsafe extern "C" fn() = std::mem::transmute(function);
        let done = set(files, c"pwrite".as_ptr(), Some(function));
        assert_eq!(done, ffi::SQLITE_OK);
    }
}

/// Replaces `pwrite(2)` and fails if the disk is full.
#[expect(unsafe_code, reason = "it is called from C")]
unsafe extern "C" fn write(file: c_int, bytes: *const c_void, count: usize, offset: i64) -> isize {
    // SAFETY: SQLite passes an open file, which it keeps, and a buffer of `count` bytes.
    let (file, bytes) = unsafe {
        let file = ManuallyDrop::new(File::from_raw_fd(file));
        (file, std::slice::from_raw_parts(bytes.cast::<u8>(), count))
    };
    let offset = offset.cast_unsigned();
    let end = offset + count as u64;
    let written = match fits(&file, end) {
        Ok(true) => file.write_at(bytes, offset),
        Ok(false) => Err(Errno::ENOSPC.into()),
        Err(error) => Err(error),
    };
    match written {
        Ok(written) => written.cast_signed(),
        Err(error) => {
            Errno::set_raw(error.raw_os_error().unwrap_or(Errno::EIO as i32));
            -1
        }
    }
}

/// Returns whether a write that ends at this offset of a file fits on the disk.
fn fits(file: &File, end: u64) -> std::io::Result<bool> {
    let mut disk = disk();
    let Some((directory, room)) = &mut *disk else {
        return Ok(true);
    };
    let found = file.metadata()?;
    let is_there = fs::read_dir(directory)?.flatten().any(|entry| {
        let known = entry.metadata();
        known.is_ok_and(|known| (known.dev(), known.ino()) == (found.dev(), found.ino()))
    });
    if !is_there {
        return Ok(true);
    }
    let grows = end.saturating_sub(found.len());
    let fits = grows <= *room;
    if fits {
        *room -= grows;
    }
    Ok(fits)
}
