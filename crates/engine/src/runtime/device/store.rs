//! Files on a device, named by their hashes, and folders of links to them.
//!
//! Invariant: a file without the ending `.part` is complete and has the hash of its name. A folder that a living agent
//! made keeps its files.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::protocol::{DeviceFile, MAX_PART_BYTES, Removed};
use pkgtool_base::source::same_bytes::sha256;
use pkgtool_base::source::text::hexadecimal;

/// Folders below the root.
const FILES: &str = "files";
const FOLDERS: &str = "folders";
const TEMPORARY: &str = "tmp";
/// Folder of the binaries.
pub(super) const PROGRAMS: &str = "bin";
/// Ending of files that are not complete.
const PART: &str = "part";

/// Free disk space that files leave, in bytes.
const LEAST_FREE_BYTES: u64 = 64 << 20;
/// Length of a hash in hexadecimal digits.
const HASH_LENGTH: usize = 64;

/// Age at which a folder without a lock is removed. A younger one may get its lock in a moment.
const LEAST_UNUSED_AGE: Duration = Duration::from_mins(10);

/// The files of the tool on a device.
pub(super) struct Store {
    root: PathBuf,
    /// Locks of the folders that this process made.
    held: Vec<File>,
}

/// A file that is being received.
pub(super) struct IncomingFile {
    part: PathBuf,
    place: PathBuf,
    target: File,
    wanted: DeviceFile,
    /// Number of bytes that are there.
    pub(super) offset: u64,
}

/// Whether a file may be sent.
pub(super) enum FileAdmission {
    /// It is there.
    Stored,
    /// Another caller is sending it.
    Busy,
    /// Its bytes are expected.
    Open(IncomingFile),
}

impl Store {
    pub(super) fn open(root: PathBuf) -> io::Result<Self> {
        for name in [FILES, FOLDERS, TEMPORARY] {
            fs::create_dir_all(root.join(name))?;
        }
        Ok(Self {
            root,
            held: Vec::new(),
        })
    }

    /// Makes a folder for the temporary files of a worker, with the lock that keeps it.
    pub(super) fn scratch(&self) -> io::Result<(TempDir, File)> {
        let folder = self.root.join(TEMPORARY);
        remove_unused(&folder);
        let scratch = tempfile::Builder::new()
            .prefix("worker-")
            .tempdir_in(folder)?;
        let lock = File::open(scratch.path())?;
        lock.lock()?;
        Ok((scratch, lock))
    }

    /// Returns the missing files by their positions, and makes room for them. Files used longest ago leave first.
    pub(super) fn missing(&self, files: &[DeviceFile], most: u64) -> Result<Vec<usize>, String> {
        let mut missing = Vec::new();
        let mut bytes = 0_u64;
        for (position, file) in files.iter().enumerate() {
            let place = self.file(file)?;
            if let Ok(present) = File::open(&place) {
                // The time of its last use. Another file system may refuse it.
                let _ = present.set_modified(SystemTime::now());
            } else {
                missing.push(position);
                let has = fs::metadata(part_of(&place)).map_or(0, |part| part.len());
                bytes = bytes.saturating_add(file.size.saturating_sub(has));
            }
        }
        let wanted = files.iter().map(|file| file.sha256.clone()).collect();
        self.make_room(bytes, most, &wanted)?;
        Ok(missing)
    }

    /// Begins to receive a file.
    pub(super) fn admit(&self, file: DeviceFile) -> Result<FileAdmission, String> {
        let place = self.file(&file)?;
        if place.is_file() {
            return Ok(FileAdmission::Stored);
        }
        let part = part_of(&place);
        let fault = |error: io::Error| format!("{}: {error}", part.display());
        let opened = File::options().create(true).append(true).open(&part);
        let target = opened.map_err(fault)?;
        match target.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(FileAdmission::Busy),
            Err(TryLockError::Error(error)) => return Err(fault(error)),
        }
        let mut offset = target.metadata().map_err(fault)?.len();
        if offset > file.size {
            target.set_len(0).map_err(fault)?;
            offset = 0;
        }
        Ok(FileAdmission::Open(IncomingFile {
            part,
            place,
            target,
            wanted: file,
            offset,
        }))
    }

    /// Makes a folder of links to files that are there. They stay as long as this process lives.
    pub(super) fn folder(&mut self, files: &[DeviceFile]) -> Result<PathBuf, String> {
        let name = folder_name(files);
        let folders = self.root.join(FOLDERS);
        let folder = folders.join(&name);
        let fault = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        let lock = lock_of(&folder);
        let held = File::create(&lock).map_err(|error| fault(&lock, error))?;
        held.lock_shared().map_err(|error| fault(&lock, error))?;
        self.held.push(held);
        for file in files {
            let place = self.file(file)?;
            let link = folder.join(checked_path(&file.path)?);
            if !place.is_file() {
                return Err(format!("{} is not there any more", file.path));
            }
            if link.exists() {
                continue;
            }
            let parent = link.parent().unwrap_or(&folder);
            fs::create_dir_all(parent).map_err(|error| fault(parent, error))?;
            // Another caller may make the same folder.
            match link_to(&place, &link) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(fault(&link, error));
                }
                _ => {}
            }
        }
        Ok(folder)
    }

    /// Removes all files of the tool, the binaries too. Other files in the directory stay.
    pub(super) fn clean(self) -> Result<Removed, String> {
        let mut removed = Removed { files: 0, bytes: 0 };
        for name in [FILES, FOLDERS, TEMPORARY, PROGRAMS] {
            let folder = self.root.join(name);
            for entry in walkdir::WalkDir::new(&folder).into_iter().flatten() {
                if entry.file_type().is_file() {
                    removed.files += 1;
                    removed.bytes += entry.metadata().map_or(0, |it| it.len());
                }
            }
            // A program that runs keeps its file until it ends.
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(format!("{}: {error}", folder.display()));
                }
                _ => {}
            }
        }
        // It stays if it has other files.
        let _ = fs::remove_dir(&self.root);
        Ok(removed)
    }

    fn file(&self, file: &DeviceFile) -> Result<PathBuf, String> {
        let is_hash = file.sha256.len() == HASH_LENGTH
            && file.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hash {
            Ok(self.root.join(FILES).join(&file.sha256))
        } else {
            Err(format!("`{}` is not a SHA-256", file.sha256.escape_debug()))
        }
    }

    fn make_room(&self, bytes: u64, most: u64, wanted: &BTreeSet<String>) -> Result<(), String> {
        if bytes == 0 {
            return Ok(());
        }
        let used = self.used_files();
        let mut present = self.present_files();
        // The one used longest ago is the last.
        present.sort_by_key(|(modified, ..)| std::cmp::Reverse(*modified));
        loop {
            let held: u64 = present.iter().map(|(_, _, size)| size).sum();
            let free = free_bytes(&self.root);
            let has_disk = free.is_none_or(|free| free >= bytes.saturating_add(LEAST_FREE_BYTES));
            if has_disk && held.saturating_add(bytes) <= most {
                return Ok(());
            }
            let oldest = present
                .iter()
                .rposition(|(_, name, _)| !wanted.contains(name) && !used.contains(name));
            let Some(oldest) = oldest else {
                return Err(match free {
                    Some(free) if !has_disk => format!(
                        "{bytes} bytes are missing there, and {free} bytes of {} are free: make room, or choose another directory with --device-dir",
                        self.root.display()
                    ),
                    _ => format!(
                        "{bytes} bytes are missing there, {held} are in use, and --device-space allows {most}"
                    ),
                });
            };
            let (_, name, _) = present.remove(oldest);
            let path = self.root.join(FILES).join(name);
            fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }

    /// Returns the complete and incomplete files that nobody is sending: the time of their last use, name and size.
    fn present_files(&self) -> Vec<(SystemTime, String, u64)> {
        let entries = fs::read_dir(self.root.join(FILES)).into_iter().flatten();
        let files = entries.flatten().filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            let name = entry.file_name().into_string().ok()?;
            let is_part = name.ends_with(PART);
            if is_part && File::open(entry.path()).ok()?.try_lock().is_err() {
                return None;
            }
            Some((metadata.modified().ok()?, name, metadata.len()))
        });
        files.collect()
    }

    /// Returns the names of files in folders of living agents. Folders that nobody uses are removed.
    fn used_files(&self) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        let entries = fs::read_dir(self.root.join(FOLDERS)).into_iter().flatten();
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            let folder = entry.path();
            let lock = File::open(lock_of(&folder));
            if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
                let _ = fs::remove_dir_all(&folder);
                continue;
            }
            for link in walkdir::WalkDir::new(&folder).into_iter().flatten() {
                let target = fs::read_link(link.path()).ok();
                let name = target.as_deref().and_then(Path::file_name);
                used.extend(name.and_then(|name| name.to_str()).map(str::to_owned));
            }
        }
        used
    }
}

impl IncomingFile {
    /// Receives the bytes that are missing. All are read, even if the disk takes no more.
    pub(super) fn receive(mut self, stream: &mut impl Read) -> io::Result<Result<(), String>> {
        let mut buffer = vec![0; MAX_PART_BYTES];
        let mut left = self.wanted.size - self.offset;
        let mut written = Ok(());
        while left > 0 {
            let count = buffer
                .len()
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            stream.read_exact(&mut buffer[..count])?;
            if written.is_ok() {
                written = self.target.write_all(&buffer[..count]);
            }
            left -= count as u64;
        }
        Ok(self.finish(written))
    }

    fn finish(self, written: io::Result<()>) -> Result<(), String> {
        let fault = |error: io::Error| format!("{}: {error}", self.part.display());
        written.map_err(fault)?;
        let found = sha256(&self.part).map_err(fault)?;
        if found != self.wanted.sha256 {
            fs::remove_file(&self.part).map_err(fault)?;
            return Err(format!("{} arrived with other bytes", self.wanted.path));
        }
        fs::rename(&self.part, &self.place).map_err(fault)
    }
}

/// Returns the path of the incomplete file.
fn part_of(place: &Path) -> PathBuf {
    place.with_extension(PART)
}

/// Returns the file whose lock the users of a folder hold.
fn lock_of(folder: &Path) -> PathBuf {
    folder.with_extension("lock")
}

/// Returns a name that depends on all paths and hashes.
fn folder_name(files: &[DeviceFile]) -> String {
    let mut hash = Sha256::new();
    for file in files {
        hash.update(format!("{}\0{}\n", file.path, file.sha256));
    }
    let digest = hash.finalize();
    hexadecimal(&digest[..16])
}

/// Returns a relative path that stays below its folder.
fn checked_path(path: &str) -> Result<&Path, String> {
    let parts = Path::new(path).components();
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !path.is_empty() && parts.into_iter().all(is_plain) {
        Ok(Path::new(path))
    } else {
        Err(format!(
            "`{}` is not a path below a folder",
            path.escape_debug()
        ))
    }
}

/// Makes a link, or a copy where the system has no links. A library is no symbolic link: it finds others beside its own
/// place.
fn link_to(place: &Path, link: &Path) -> io::Result<()> {
    let name = link.file_name().unwrap_or_default().to_string_lossy();
    if name.contains(".so") || name.ends_with(".dylib") {
        // Android's shell may not make hard links.
        return fs::hard_link(place, link).or_else(|_| fs::copy(place, link).map(drop));
    }
    std::os::unix::fs::symlink(place, link).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::copy(place, link).map(drop),
    })
}

/// Returns the free bytes of a file system.
fn free_bytes(path: &Path) -> Option<u64> {
    let room = rustix::fs::statvfs(path).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}

/// Removes the folders of workers that were killed.
fn remove_unused(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let changed = entry.metadata().and_then(|it| it.modified());
        let age = changed.ok().and_then(|time| time.elapsed().ok());
        let is_old = age.is_some_and(|age| age > LEAST_UNUSED_AGE);
        let is_free = || File::open(entry.path()).is_ok_and(|it| it.try_lock().is_ok());
        if is_old && is_free() {
            // Another agent may remove it, too.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn described(bytes: &[u8]) -> DeviceFile {
        let digest = Sha256::digest(bytes);
        DeviceFile {
            path: "a/model.pte".to_owned(),
            sha256: hexadecimal(&digest),
            size: bytes.len() as u64,
        }
    }

    fn put(store: &Store, bytes: &[u8]) -> DeviceFile {
        let file = described(bytes);
        let FileAdmission::Open(incoming) = store.admit(file.clone()).expect("it is admitted")
        else {
            panic!("it is there, or busy");
        };
        let mut rest = &bytes[usize::try_from(incoming.offset).expect("small")..];
        let received = incoming.receive(&mut rest).expect("they are all there");
        received.expect("the hash is right");
        file
    }

    #[test]
    fn a_file_goes_on_where_it_broke_off() {
        let root = tempfile::tempdir().expect("a folder");
        let mut store = Store::open(root.path().join("store")).expect("it is new");
        let file = described(b"0123456789");
        assert_eq!(store.missing(std::slice::from_ref(&file), 100), Ok(vec![0]));
        let Ok(FileAdmission::Open(incoming)) = store.admit(file.clone()) else {
            panic!("it is new");
        };
        assert!(matches!(store.admit(file.clone()), Ok(FileAdmission::Busy)));
        assert!(incoming.receive(&mut &b"01234"[..]).is_err());
        // What was read in part is lost; what was written stays.
        fs::write(part_of(&store.file(&file).expect("a path")), "01234").expect("a file");
        put(&store, b"0123456789");
        assert_eq!(store.missing(std::slice::from_ref(&file), 100), Ok(vec![]));
        let folder = store.folder(std::slice::from_ref(&file)).expect("a folder");
        let read = fs::read(folder.join("a/model.pte")).expect("a link");
        assert_eq!(read, b"0123456789");
        let removed = store.clean().expect("it goes");
        assert_eq!((removed.files, removed.bytes), (2, 10));
        assert!(!root.path().join("store").exists());
        let store = Store::open(root.path().to_owned()).expect("it is new");
        fs::write(root.path().join("diary"), "mine").expect("a file");
        store.clean().expect("it goes");
        assert_eq!(fs::read_dir(root.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn other_bytes_are_not_kept() {
        let root = tempfile::tempdir().expect("a folder");
        let store = Store::open(root.path().to_owned()).expect("it is new");
        let file = described(b"right");
        let Ok(FileAdmission::Open(incoming)) = store.admit(file.clone()) else {
            panic!("it is new");
        };
        let received = incoming.receive(&mut &b"wrong"[..]).expect("all bytes");
        assert!(received.is_err());
        assert_eq!(store.missing(&[file], 100), Ok(vec![0]));
        let mut evil = described(b"x");
        evil.sha256 = "../../etc/passwd".to_owned();
        assert!(store.admit(evil).is_err());
        let mut outside = put(&store, b"y");
        outside.path = "../y".to_owned();
        let mut store = store;
        assert!(store.folder(&[outside]).is_err());
    }

    #[test]
    fn the_file_used_longest_ago_leaves_first() {
        let root = tempfile::tempdir().expect("a folder");
        let mut store = Store::open(root.path().to_owned()).expect("it is new");
        let files: Vec<DeviceFile> = [b"aaaa", b"bbbb", b"cccc"].map(|it| put(&store, it)).into();
        for (hours, file) in files.iter().enumerate() {
            let path = store.file(file).expect("a path");
            let opened = File::options().write(true).open(path).expect("a file");
            let age = Duration::from_secs(3600 * (10 - hours as u64));
            opened
                .set_modified(SystemTime::now() - age)
                .expect("a time");
        }
        store.folder(&files[..1]).expect("a folder");
        let new = described(b"dddd");
        assert_eq!(store.missing(std::slice::from_ref(&new), 12), Ok(vec![0]));
        // The first is in use; the second left.
        let left = |file: &DeviceFile| store.file(file).is_ok_and(|path| path.is_file());
        assert_eq!(
            [left(&files[0]), left(&files[1]), left(&files[2])],
            [true, false, true]
        );
        let large = DeviceFile { size: 100, ..new };
        assert!(store.missing(&[large], 50).is_err());
    }
}
