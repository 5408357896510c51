//! What a directory has of a source: finished files, begun ones, and the lock of those who fetch.
//!
//! All of it is in `.pkgtool` in the directory: `lock`, `pulled.json`, and begun files in `parts/` with a
//! note of what they are the beginning of.
//! Invariant: nothing here leaves the directory, through no link; a note is on disk before the first byte
//! that it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use walkdir::WalkDir;

use super::plan::Wanted;
use crate::remote::{RemoteError, record};

/// The folder in the directory.
const FOLDER: &str = ".pkgtool";
/// Bytes that are hashed at once.
const CHUNK: usize = 256 << 10;

/// What a directory has.
pub(super) struct Journal {
    directory: PathBuf,
    _lock: File,
    pulled: Mutex<BTreeMap<String, Finished>>,
}

/// A file that was fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Finished {
    size: u64,
    /// When it was last written, in nanoseconds since 1970: whether it was touched since.
    modified: u64,
    sha256: String,
    #[serde(default)]
    mark: Option<String>,
}

/// What a begun file is the beginning of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    /// Where it comes from.
    pub(super) url: String,
    /// Size of the whole file.
    pub(super) size: u64,
    /// The server's tag of it.
    pub(super) tag: Option<String>,
    /// SHA-256 of the whole file, where one is told.
    pub(super) sha256: Option<String>,
}

/// What stands where a file is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum There {
    /// Nothing, or nothing of which it is known that it differs.
    Nothing,
    /// The file.
    Same,
    /// Another one.
    Other,
}

impl Journal {
    /// Takes the lock of the directory, which is made if it is not there.
    pub(super) fn open(directory: &Path) -> Result<Self, RemoteError> {
        let fail = |error: io::Error| RemoteError::disk(directory, &error);
        fs::create_dir_all(directory).map_err(fail)?;
        let directory = directory.canonicalize().map_err(fail)?;
        let folder = directory.join(FOLDER);
        refuse_link(&folder)?;
        fs::create_dir_all(folder.join("parts")).map_err(fail)?;
        let path = folder.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let lock = options
            .open(&path)
            .map_err(|error| RemoteError::disk(&path, &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(RemoteError::Busy(directory.display().to_string()));
            }
            Err(TryLockError::Error(error)) => return Err(RemoteError::disk(&path, &error)),
        }
        let pulled = record::read(&folder.join("pulled.json")).unwrap_or_default();
        Ok(Self {
            directory,
            _lock: lock,
            pulled: Mutex::new(pulled),
        })
    }

    /// The directory, without links.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where a file is to be, its folder made. Fails where a link would lead out of the directory.
    pub(super) fn place(&self, wanted: &Wanted) -> Result<PathBuf, RemoteError> {
        let path = self.checked(&wanted.target)?;
        make_parent(&path)?;
        Ok(path)
    }

    /// Where a begun file is, and the note of it; their folder made.
    pub(super) fn part(&self, wanted: &Wanted) -> Result<(PathBuf, PathBuf), RemoteError> {
        let part = self.checked(&format!("{FOLDER}/parts/{}.part", wanted.target))?;
        let note = self.checked(&format!("{FOLDER}/parts/{}.part.json", wanted.target))?;
        make_parent(&part)?;
        Ok((part, note))
    }

    /// Bytes of a begun file.
    pub(super) fn part_size(&self, wanted: &Wanted) -> u64 {
        let path = self
            .directory
            .join(format!("{FOLDER}/parts/{}.part", wanted.target));
        fs::symlink_metadata(path).map_or(0, |metadata| metadata.len())
    }

    /// Looks what is at a file's place.
    pub(super) fn look(&self, wanted: &Wanted) -> Result<There, RemoteError> {
        let path = self.checked(&wanted.target)?;
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(There::Nothing),
            Err(error) => return Err(RemoteError::disk(&path, &error)),
        };
        if !metadata.is_file() || metadata.len() != wanted.size {
            return Ok(There::Other);
        }
        let known = self.pulled().get(&wanted.target).cloned();
        let known = known
            .filter(|known| known.size == metadata.len() && known.modified == modified(&metadata));
        if let Some(sha256) = &wanted.sha256 {
            let own = match known {
                Some(known) => known.sha256,
                None => self.hash(&path)?,
            };
            return Ok(if own == *sha256 {
                There::Same
            } else {
                There::Other
            });
        }
        Ok(match known {
            // As far as the server tells, it is the one that was fetched.
            Some(known) if known.mark == wanted.mark => There::Same,
            Some(_) => There::Other,
            // It is fetched beside this one and compared.
            None => There::Nothing,
        })
    }

    /// SHA-256 of a file, in hex.
    #[expect(
        clippy::unused_self,
        reason = "files of the directory are hashed, no others"
    )]
    pub(super) fn hash(&self, path: &Path) -> Result<String, RemoteError> {
        let fail = |error| RemoteError::disk(path, &error);
        let mut file = File::open(path).map_err(fail)?;
        let mut hasher = Sha256::new();
        let mut chunk = vec![0; CHUNK];
        loop {
            match file.read(&mut chunk).map_err(fail)? {
                0 => break,
                count => hasher.update(&chunk[..count]),
            }
        }
        Ok(hex(&hasher.finalize()))
    }

    /// Takes down that a file is complete.
    pub(super) fn finish(
        &self,
        wanted: &Wanted,
        path: &Path,
        sha256: String,
    ) -> Result<(), RemoteError> {
        let metadata = fs::metadata(path).map_err(|error| RemoteError::disk(path, &error))?;
        let finished = Finished {
            size: metadata.len(),
            modified: modified(&metadata),
            sha256,
            mark: wanted.mark.clone(),
        };
        self.pulled().insert(wanted.target.clone(), finished);
        self.write()
    }

    /// Writes down which files are complete.
    pub(super) fn write(&self) -> Result<(), RemoteError> {
        // Others wait: two may not write the same file.
        let pulled = self.pulled();
        let path = self.directory.join(FOLDER).join("pulled.json");
        record::write(&path, &*pulled).map_err(|error| RemoteError::disk(&path, &error))
    }

    /// Takes a file of another directory under the same name: one file with two names, where that can be
    /// and nothing is there yet.
    pub(super) fn take_from(&self, other: &Self, wanted: &Wanted) -> Result<(), RemoteError> {
        let known = other.pulled().get(&wanted.target).cloned();
        let (Some(known), Some(from)) = (known, other.checked(&wanted.target).ok()) else {
            return Ok(());
        };
        if other.look(wanted)? == There::Same && fs::hard_link(from, self.place(wanted)?).is_ok() {
            self.pulled().insert(wanted.target.clone(), known);
        }
        Ok(())
    }

    /// Whether nothing is in the directory but what is wanted.
    pub(super) fn has_only(&self, targets: &BTreeSet<&str>) -> bool {
        self.strangers(targets).next().is_none()
    }

    /// Takes away what is not wanted, and sees to it that the rest is on the disk.
    pub(super) fn keep_only(&self, targets: &BTreeSet<&str>) -> Result<(), RemoteError> {
        for path in self.strangers(targets) {
            fs::remove_file(&path).map_err(|error| RemoteError::disk(&path, &error))?;
        }
        self.pulled()
            .retain(|target, _| targets.contains(target.as_str()));
        self.write()?;
        for entry in WalkDir::new(&self.directory).contents_first(true) {
            let folder = entry.ok().filter(|entry| entry.file_type().is_dir());
            if let Some(folder) = folder {
                // Only empty ones go.
                let _ = fs::remove_dir(folder.path());
                // Not every system lets a folder be opened.
                let _ = File::open(folder.path()).and_then(|folder| folder.sync_all());
            }
        }
        Ok(())
    }

    /// Whether every file that was taken down as complete is there as it was.
    pub(super) fn is_whole(&self) -> Result<bool, RemoteError> {
        let pulled = self.pulled().clone();
        for (target, finished) in &pulled {
            let path = self.checked(target)?;
            let found = fs::symlink_metadata(&path).ok();
            let Some(found) = found.filter(|found| found.is_file() && found.len() == finished.size)
            else {
                return Ok(false);
            };
            if modified(&found) != finished.modified && self.hash(&path)? != finished.sha256 {
                return Ok(false);
            }
        }
        Ok(!pulled.is_empty())
    }

    /// Files in the directory that are not wanted, this journal's own left aside.
    fn strangers(&self, targets: &BTreeSet<&str>) -> impl Iterator<Item = PathBuf> {
        let walk = WalkDir::new(&self.directory).min_depth(1).into_iter();
        let own = self.directory.join(FOLDER);
        let entries = walk
            .filter_entry(move |entry| entry.path() != own)
            .flatten();
        entries.filter_map(move |entry| {
            let below = entry.path().strip_prefix(&self.directory).ok()?;
            let parts: Option<Vec<&str>> = below.iter().map(|part| part.to_str()).collect();
            let is_wanted = parts.is_some_and(|parts| targets.contains(parts.join("/").as_str()));
            (!entry.file_type().is_dir() && !is_wanted).then(|| entry.into_path())
        })
    }

    /// Takes away what only a pull that was interrupted needs.
    pub(super) fn close(self) {
        // What stays of it does no harm.
        let _ = fs::remove_dir_all(self.directory.join(FOLDER).join("parts"));
    }

    fn pulled(&self) -> MutexGuard<'_, BTreeMap<String, Finished>> {
        self.pulled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of something in the directory, no folder on the way to it being a link.
    fn checked(&self, below: &str) -> Result<PathBuf, RemoteError> {
        let mut path = self.directory.clone();
        let parts: Vec<&str> = below.split('/').collect();
        for folder in &parts[..parts.len() - 1] {
            path.push(folder);
            refuse_link(&path)?;
        }
        path.push(parts[parts.len() - 1]);
        Ok(path)
    }
}

impl Begun {
    /// Reads the note of a begun file.
    pub(super) fn read(path: &Path) -> Option<Self> {
        record::read(path)
    }

    /// Writes it.
    pub(super) fn write(&self, path: &Path) -> Result<(), RemoteError> {
        record::write(path, self).map_err(|error| RemoteError::disk(path, &error))
    }
}

fn refuse_link(path: &Path) -> Result<(), RemoteError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_dir() => Err(RemoteError::Disk {
            path: path.display().to_string(),
            reason: "a folder is needed here, and this is a link or a file; nothing is written through it".to_owned(),
        }),
        _ => Ok(()),
    }
}

fn make_parent(path: &Path) -> Result<(), RemoteError> {
    match path.parent() {
        Some(parent) => {
            fs::create_dir_all(parent).map_err(|error| RemoteError::disk(parent, &error))
        }
        None => Ok(()),
    }
}

fn modified(metadata: &fs::Metadata) -> u64 {
    let since = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
