//! What a directory has of a source: finished files, begun ones, and the lock of those who fetch.
//!
//! All of it is in `.pkgtool` in the directory: `lock`, `pulled.json`, and begun files in `parts/` with a
//! note of what they are the beginning of.
//! Invariant: nothing here leaves the directory, through no link; a note is on disk before the first byte
//! that it is about.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::plan::Wanted;
use crate::remote::RemoteError;

/// The folder in the directory.
const FOLDER: &str = ".pkgtool";
/// Largest record that is read, in bytes.
const MAX_RECORD: u64 = 16 << 20;
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
        let pulled = read_record(&folder.join("pulled.json")).unwrap_or_default();
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
        let mut pulled = self.pulled();
        pulled.insert(wanted.target.clone(), finished);
        let path = self.directory.join(FOLDER).join("pulled.json");
        write_record(&path, &*pulled).map_err(|error| RemoteError::disk(&path, &error))
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
        read_record(path)
    }

    /// Writes it.
    pub(super) fn write(&self, path: &Path) -> Result<(), RemoteError> {
        write_record(path, self).map_err(|error| RemoteError::disk(path, &error))
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

fn read_record<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    if fs::symlink_metadata(path).ok()?.len() > MAX_RECORD {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Writes beside it and puts it in its place: at any moment one of the two is whole.
fn write_record(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let beside = path.with_extension("json.new");
    let mut file = File::create(&beside)?;
    file.write_all(&serde_json::to_vec_pretty(record)?)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
