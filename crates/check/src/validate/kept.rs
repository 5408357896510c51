//! A cache of facts about files that lasts from one check to the next, as an editor session needs
//! it.
//!
//! Invariant: a cached fact is returned only while the file's size, modification time and inode
//! number are unchanged. For a directory, the sizes and modification times of everything in it
//! count.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use walkdir::WalkDir;

/// Maximum number of cached files.
const MAX_FILES: usize = 2048;
/// Maximum number of entries of a directory that are inspected.
const MAX_ENTRIES: usize = 10_000;

/// Cached facts, by path and by whether the file was opened as a model.
#[derive(Debug)]
pub(super) struct FactCache<F> {
    files: Mutex<CacheEntries<F>>,
}

#[derive(Debug)]
struct CacheEntries<F> {
    by_path: HashMap<(PathBuf, bool), CachedFacts<F>>,
    /// Counts the uses, so that the least recently used entries are evicted.
    clock: u64,
}

#[derive(Debug)]
struct CachedFacts<F> {
    stamp: FileStamp,
    facts: Arc<F>,
    used: u64,
}

/// The state by which a change of a file is detected.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FileStamp {
    Nothing,
    File(u64, Option<SystemTime>, u64),
    /// A hash of the metadata of everything in it.
    Directory(u64),
}

impl<F> FactCache<F> {
    /// Creates an empty cache.
    pub(super) fn new() -> Self {
        let files = CacheEntries {
            by_path: HashMap::new(),
            clock: 0,
        };
        Self {
            files: Mutex::new(files),
        }
    }

    /// Returns the facts about the file at `path`; calls `look` only if the file has changed since
    /// the last time.
    pub(super) fn facts(&self, path: &Path, open_model: bool, look: impl FnOnce() -> F) -> Arc<F> {
        // The state is taken before the file is read, so that a change in between is noticed the
        // next time.
        let stamp = FileStamp::of(path);
        let key = (path.to_owned(), open_model);
        if let Some(facts) = self.locked().get(&key, &stamp) {
            return facts;
        }
        let facts = Arc::new(look());
        self.locked().insert(key, stamp, &facts);
        facts
    }

    /// Returns the cached paths whose files have changed.
    pub(super) fn changed(&self) -> Vec<PathBuf> {
        let known: Vec<(PathBuf, FileStamp)> = {
            let files = self.locked();
            let entries = files.by_path.iter();
            entries
                .map(|((path, _), entry)| (path.clone(), entry.stamp.clone()))
                .collect()
        };
        let known = known.into_iter();
        let changed = known.filter(|(path, stamp)| FileStamp::of(path) != *stamp);
        changed.map(|(path, _)| path).collect()
    }

    /// Drops the facts about `path`, everything below it and everything that contains it.
    pub(super) fn forget(&self, path: &Path) {
        let mut files = self.locked();
        files
            .by_path
            .retain(|(known, _), _| !known.starts_with(path) && !path.starts_with(known));
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, CacheEntries<F>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> CacheEntries<F> {
    fn get(&mut self, key: &(PathBuf, bool), stamp: &FileStamp) -> Option<Arc<F>> {
        self.clock += 1;
        let entry = self.by_path.get_mut(key)?;
        if entry.stamp != *stamp {
            return None;
        }
        entry.used = self.clock;
        Some(Arc::clone(&entry.facts))
    }

    fn insert(&mut self, key: (PathBuf, bool), stamp: FileStamp, facts: &Arc<F>) {
        if self.by_path.len() >= MAX_FILES {
            let oldest = self.clock.saturating_sub(MAX_FILES as u64 / 2);
            self.by_path.retain(|_, entry| entry.used > oldest);
        }
        let entry = CachedFacts {
            stamp,
            facts: Arc::clone(facts),
            used: self.clock,
        };
        self.by_path.insert(key, entry);
    }
}

impl FileStamp {
    fn of(path: &Path) -> Self {
        let Ok(metadata) = fs::metadata(path) else {
            return Self::Nothing;
        };
        if !metadata.is_dir() {
            let changed = metadata.modified().ok();
            return Self::File(metadata.len(), changed, number(&metadata));
        }
        let mut hasher = DefaultHasher::new();
        let entries = WalkDir::new(path).sort_by_file_name().into_iter();
        for entry in entries.take(MAX_ENTRIES).flatten() {
            entry.path().hash(&mut hasher);
            if let Ok(metadata) = fs::metadata(entry.path()) {
                (metadata.len(), metadata.modified().ok()).hash(&mut hasher);
            }
        }
        Self::Directory(hasher.finish())
    }
}

/// Returns the file's inode number, if the system has one. A replaced file gets another number.
#[cfg(unix)]
fn number(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn number(_: &Metadata) -> u64 {
    0
}
