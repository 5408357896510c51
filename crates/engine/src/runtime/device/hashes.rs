//! Hashes of files of this machine, kept from command to command: hashing a large model takes seconds.
//!
//! Invariant: a kept hash counts only for the same path, size and time of change. A file that changed just now is hashed
//! again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use pkgtool_base::source::same_bytes::sha256;

/// Size from which a hash is kept, in bytes.
const LEAST_BYTES: u64 = 1 << 20;
/// Maximum number of kept hashes, and size of their file in bytes.
const MAX_KEPT: usize = 1000;
const MAX_FILE_BYTES: u64 = 1 << 20;
/// A file may change again without another time of change within so long.
const SETTLED: Duration = Duration::from_secs(2);

/// The hashes that are known.
#[derive(Debug, Default)]
pub(super) struct KnownHashes {
    place: Option<PathBuf>,
    known: Mutex<BTreeMap<PathBuf, KnownHash>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KnownHash {
    size: u64,
    modified: SystemTime,
    sha256: String,
}

impl KnownHashes {
    /// Reads the hashes in a file. A file that cannot be read has none.
    pub(super) fn read(place: Option<PathBuf>) -> Self {
        let is_small = |place: &&PathBuf| {
            let size = fs::metadata(place).map(|file| file.len());
            size.is_ok_and(|size| size <= MAX_FILE_BYTES)
        };
        let text = place.as_ref().filter(is_small).map(fs::read);
        let text = text.and_then(Result::ok).unwrap_or_default();
        Self {
            place,
            known: Mutex::new(serde_json::from_slice(&text).unwrap_or_default()),
        }
    }

    /// Returns the size and the hash of a file.
    pub(super) fn of(&self, path: &Path) -> io::Result<(u64, String)> {
        let file = fs::metadata(path)?;
        let (size, modified) = (file.len(), file.modified()?);
        if size < LEAST_BYTES {
            return Ok((size, sha256(path)?));
        }
        let absolute = path.canonicalize()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = known.get(&absolute);
        if let Some(kept) = kept.filter(|it| it.size == size && it.modified == modified) {
            return Ok((size, kept.sha256.clone()));
        }
        let hash = sha256(path)?;
        let age = SystemTime::now().duration_since(modified);
        if age.is_ok_and(|age| age > SETTLED) {
            let new = KnownHash {
                size,
                modified,
                sha256: hash.clone(),
            };
            known.insert(absolute, new);
            known.retain(|path, _| path.exists());
            while known.len() > MAX_KEPT {
                known.pop_first();
            }
            // Without it the file is hashed again.
            let _ = self.write(&known);
        }
        Ok((size, hash))
    }

    fn write(&self, known: &BTreeMap<PathBuf, KnownHash>) -> io::Result<()> {
        let Some(place) = &self.place else {
            return Ok(());
        };
        fs::create_dir_all(place.parent().unwrap_or(place))?;
        let new = place.with_extension(std::process::id().to_string());
        fs::write(&new, serde_json::to_vec(known)?)?;
        fs::rename(&new, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_is_hashed_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, place) = (
            folder.path().join("model"),
            folder.path().join("a/hashes.json"),
        );
        let write = |byte: u8, age: u64| {
            fs::write(&file, vec![byte; 2 << 20]).expect("a file");
            let opened = fs::File::options().write(true).open(&file).expect("a file");
            let time = SystemTime::now() - Duration::from_secs(age);
            opened.set_modified(time).expect("a time");
        };
        write(1, 100);
        let first = KnownHashes::read(Some(place.clone()))
            .of(&file)
            .expect("a hash");
        assert_eq!(first.1, sha256(&file).expect("a hash"));
        let kept = KnownHashes::read(Some(place.clone()));
        assert_eq!(kept.known.lock().expect("no panic").len(), 1);
        assert_eq!(kept.of(&file).expect("a hash"), first);
        write(2, 50);
        assert_ne!(kept.of(&file).expect("a hash"), first);
        // A file that changed just now is not kept.
        write(3, 0);
        let third = kept.of(&file).expect("a hash");
        assert_eq!(third.1, sha256(&file).expect("a hash"));
        assert_ne!(
            kept.known
                .lock()
                .expect("no panic")
                .values()
                .next()
                .map(|it| it.sha256.clone()),
            Some(third.1)
        );
        fs::write(&place, "[not JSON").expect("a file");
        assert!(
            KnownHashes::read(Some(place))
                .known
                .lock()
                .expect("no panic")
                .is_empty()
        );
    }
}
