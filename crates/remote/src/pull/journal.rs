//! The state of a download directory: finished files, partial files, and a lock against concurrent
//! downloads.
//!
//! The folder `.pkgtool` in the directory contains `lock`, the record `pulled.json` of finished
//! files, and partial files in `parts/`. Each partial file has a note that describes the complete
//! file.
//!
//! Invariant: nothing outside the directory is written, not even through links. A note is on disk
//! before the first byte of its partial file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use walkdir::WalkDir;

use super::plan::WantedFile;
use crate::{RemoteError, record};
use pkgtool_base::source::text::hexadecimal;

/// Folder of this state in the download directory.
const STATE_FOLDER: &str = ".pkgtool";
/// Number of bytes that are hashed at once.
const HASH_CHUNK_BYTES: usize = 256 << 10;

/// The state of a download directory.
pub(super) struct Journal {
    directory: PathBuf,
    _lock: File,
    pulled: Mutex<BTreeMap<String, FinishedFile>>,
}

/// A finished file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FinishedFile {
    size: u64,
    /// Modification time in nanoseconds since 1970, to detect later changes.
    modified: u64,
    sha256: String,
    #[serde(default)]
    mark: Option<String>,
}

/// The note of a partial file, which describes the complete file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartialFileNote {
    /// URL of the content.
    pub(super) url: String,
    /// Size of the complete file, in bytes.
    pub(super) size: u64,
    /// `ETag` of the file.
    pub(super) tag: Option<String>,
    /// SHA-256 of the complete file, if known.
    pub(super) sha256: Option<String>,
}

/// The local file at the target of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocalFile {
    /// The file is missing, or it is unknown whether it differs.
    Nothing,
    /// The same file.
    Same,
    /// A different file.
    Other,
}

impl Journal {
    /// Creates the directory if it is missing, and locks it.
    pub(super) fn open(directory: &Path) -> Result<Self, RemoteError> {
        let fail = |error: io::Error| RemoteError::disk(directory, &error);
        fs::create_dir_all(directory).map_err(fail)?;
        let directory = directory.canonicalize().map_err(fail)?;
        let folder = directory.join(STATE_FOLDER);
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

    /// Returns the directory with links resolved.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the target path of a file and creates its folder. Fails if a link would lead out of
    /// the directory.
    pub(super) fn place(&self, wanted: &WantedFile) -> Result<PathBuf, RemoteError> {
        let path = self.checked(&wanted.target)?;
        make_parent(&path)?;
        Ok(path)
    }

    /// Returns the paths of a partial file and of its note, and creates their folder.
    pub(super) fn part_paths(
        &self,
        wanted: &WantedFile,
    ) -> Result<(PathBuf, PathBuf), RemoteError> {
        let part = self.checked(&format!("{STATE_FOLDER}/parts/{}.part", wanted.target))?;
        let note = self.checked(&format!("{STATE_FOLDER}/parts/{}.part.json", wanted.target))?;
        make_parent(&part)?;
        Ok((part, note))
    }

    /// Returns the size of a partial file, in bytes.
    pub(super) fn part_size(&self, wanted: &WantedFile) -> u64 {
        let path = self
            .directory
            .join(format!("{STATE_FOLDER}/parts/{}.part", wanted.target));
        fs::symlink_metadata(path).map_or(0, |metadata| metadata.len())
    }

    /// Examines the local file at the target of a download.
    pub(super) fn examine(&self, wanted: &WantedFile) -> Result<LocalFile, RemoteError> {
        let path = self.checked(&wanted.target)?;
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LocalFile::Nothing),
            Err(error) => return Err(RemoteError::disk(&path, &error)),
        };
        if !metadata.is_file() || metadata.len() != wanted.size {
            return Ok(LocalFile::Other);
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
                LocalFile::Same
            } else {
                LocalFile::Other
            });
        }
        Ok(match known {
            // According to the server, the file is unchanged since it was downloaded.
            Some(known) if known.mark == wanted.mark => LocalFile::Same,
            Some(_) => LocalFile::Other,
            // The file is downloaded to a partial file and compared then.
            None => LocalFile::Nothing,
        })
    }

    /// Returns the SHA-256 of a file in hexadecimal.
    #[expect(clippy::unused_self, reason = "only files of the directory are hashed")]
    pub(super) fn hash(&self, path: &Path) -> Result<String, RemoteError> {
        let fail = |error| RemoteError::disk(path, &error);
        let mut file = File::open(path).map_err(fail)?;
        let mut hasher = Sha256::new();
        let mut chunk = vec![0; HASH_CHUNK_BYTES];
        loop {
            match file.read(&mut chunk).map_err(fail)? {
                0 => break,
                count => hasher.update(&chunk[..count]),
            }
        }
        Ok(hexadecimal(&hasher.finalize()))
    }

    /// Records that a file is complete.
    pub(super) fn finish(
        &self,
        wanted: &WantedFile,
        path: &Path,
        sha256: String,
    ) -> Result<(), RemoteError> {
        let metadata = fs::metadata(path).map_err(|error| RemoteError::disk(path, &error))?;
        let finished = FinishedFile {
            size: metadata.len(),
            modified: modified(&metadata),
            sha256,
            mark: wanted.mark.clone(),
        };
        self.pulled().insert(wanted.target.clone(), finished);
        self.write()
    }

    /// Writes the record of finished files.
    pub(super) fn write(&self) -> Result<(), RemoteError> {
        // The lock prevents concurrent writes of the same file.
        let pulled = self.pulled();
        let path = self.directory.join(STATE_FOLDER).join("pulled.json");
        record::write(&path, &*pulled).map_err(|error| RemoteError::disk(&path, &error))
    }

    /// Reuses a finished file of another directory by a hard link, if the file system supports it
    /// and the target does not exist.
    pub(super) fn reuse_from(&self, other: &Self, wanted: &WantedFile) -> Result<(), RemoteError> {
        let known = other.pulled().get(&wanted.target).cloned();
        let (Some(known), Some(from)) = (known, other.checked(&wanted.target).ok()) else {
            return Ok(());
        };
        if other.examine(wanted)? == LocalFile::Same
            && fs::hard_link(from, self.place(wanted)?).is_ok()
        {
            self.pulled().insert(wanted.target.clone(), known);
        }
        Ok(())
    }

    /// Returns whether the directory contains only wanted files.
    pub(super) fn has_only(&self, targets: &BTreeSet<&str>) -> bool {
        self.unwanted_files(targets).next().is_none()
    }

    /// Removes all other files, and flushes the remaining ones to the disk.
    pub(super) fn keep_only(&self, targets: &BTreeSet<&str>) -> Result<(), RemoteError> {
        for path in self.unwanted_files(targets) {
            fs::remove_file(&path).map_err(|error| RemoteError::disk(&path, &error))?;
        }
        self.pulled()
            .retain(|target, _| targets.contains(target.as_str()));
        self.write()?;
        for entry in WalkDir::new(&self.directory).contents_first(true) {
            let folder = entry.ok().filter(|entry| entry.file_type().is_dir());
            if let Some(folder) = folder {
                // This removes only empty folders.
                let _ = fs::remove_dir(folder.path());
                // Some systems do not allow opening a folder.
                let _ = File::open(folder.path()).and_then(|folder| folder.sync_all());
            }
        }
        Ok(())
    }

    /// Returns whether all finished files still exist unchanged.
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

    /// Returns the files in the directory that are not wanted, except the files of this journal.
    fn unwanted_files(&self, targets: &BTreeSet<&str>) -> impl Iterator<Item = PathBuf> {
        let walk = WalkDir::new(&self.directory).min_depth(1).into_iter();
        let own = self.directory.join(STATE_FOLDER);
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

    /// Removes the state that only an interrupted download needs.
    pub(super) fn close(self) {
        // Leftovers do no harm.
        let _ = fs::remove_dir_all(self.directory.join(STATE_FOLDER).join("parts"));
    }

    fn pulled(&self) -> MutexGuard<'_, BTreeMap<String, FinishedFile>> {
        self.pulled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a path in the directory. Fails if a folder on the way is a link.
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

impl PartialFileNote {
    /// Reads the note of a partial file.
    pub(super) fn read(path: &Path) -> Option<Self> {
        record::read(path)
    }

    /// Writes the note.
    pub(super) fn write(&self, path: &Path) -> Result<(), RemoteError> {
        record::write(path, self).map_err(|error| RemoteError::disk(path, &error))
    }
}

fn refuse_link(path: &Path) -> Result<(), RemoteError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_dir() => Err(RemoteError::Disk {
            path: path.display().to_string(),
            reason: "expected a folder, found a link or a file, which is not followed".to_owned(),
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
