//! Packages of other machines on disk: fetched by their hashes, kept within a limit of size.
//!
//! Invariant: a folder named by a version has exactly the files of that version, each with its hash.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use super::manifest::{PackageFile, PackageManifest};
use crate::database::{DatabaseError, make_directory};
use pkgtool_base::source::{bounds, same_bytes::sha256};

/// Maximum number of pieces of a file that are received before it is asked for again.
const ATTEMPTS: usize = 3;

/// The folder of the packages.
#[derive(Debug, Clone)]
pub struct PackageCache {
    root: PathBuf,
    most: u64,
}

/// A package could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The assignment is not one that can be followed.
    #[error("the package is refused: {0}")]
    Refused(String),
    /// A file could not be fetched.
    #[error("`{path}` could not be fetched: {reason}")]
    NotFetched {
        /// The path in the package.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The folder cannot be made.
    #[error(transparent)]
    Folder(#[from] DatabaseError),
    /// A file of the folder cannot be used.
    #[error("{}: {error}", path.display())]
    Disk {
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// A place that has the files of packages.
#[async_trait::async_trait]
pub(crate) trait PackageSource: Sync {
    /// Returns the bytes of a file from an offset on. An error is the reason.
    async fn content(&self, file: &PackageFile, offset: u64) -> Result<FileBytes, String>;
}

/// The bytes of a file, in pieces.
pub(crate) type FileBytes = BoxStream<'static, Result<Bytes, String>>;

impl PackageCache {
    /// Opens a folder that may hold so many bytes.
    pub fn open(root: PathBuf, most: u64) -> Result<Self, CacheError> {
        make_directory(&root)?;
        // The operator chose it, whatever links lead there.
        bounds::choose(&root);
        Ok(Self { root, most })
    }

    /// Returns the folder of a package, and fetches the files that are missing. Versions in use stay.
    pub(crate) async fn folder(
        &self,
        source: &dyn PackageSource,
        manifest: &PackageManifest,
        in_use: &BTreeSet<String>,
    ) -> Result<PathBuf, CacheError> {
        manifest.check(self.most).map_err(CacheError::Refused)?;
        let folder = self.root.join(&manifest.version);
        let record = self.record(&manifest.version);
        if record.is_file() {
            // The time of the last use.
            let touched = fs::File::open(&record).and_then(|it| it.set_modified(SystemTime::now()));
            touched.map_err(|error| disk(&record, error))?;
            return Ok(folder);
        }
        self.trim(manifest.bytes(), in_use)?;
        let unfinished = self.root.join(format!("{}.part", manifest.version));
        let known = self.known();
        for file in &manifest.files {
            let target = unfinished.join(&file.path);
            make_parent(&target)?;
            let same = known.get(&file.sha256).filter(|path| path.is_file());
            if is_whole(&target, file) {
                continue;
            }
            match same {
                Some(same) => {
                    link_or_copy(same, &target).map_err(|error| disk(&target, error))?;
                }
                None => fetch_file(source, file, &target).await?,
            }
        }
        fs::create_dir_all(&unfinished).map_err(|error| disk(&unfinished, error))?;
        fs::rename(&unfinished, &folder).map_err(|error| disk(&folder, error))?;
        let text = serde_json::to_vec(&manifest.files).unwrap_or_default();
        fs::write(&record, text).map_err(|error| disk(&record, error))?;
        Ok(folder)
    }

    fn record(&self, version: &str) -> PathBuf {
        self.root.join(format!("{version}.json"))
    }

    /// Returns the versions that are there, the one used longest ago first.
    fn versions(&self) -> Vec<(String, Vec<PackageFile>)> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_suffix(".json")?.to_owned();
            let used = entry.metadata().ok()?.modified().ok()?;
            let files = serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()?;
            Some((used, version, files))
        });
        let mut found: Vec<(SystemTime, String, Vec<PackageFile>)> = found.collect();
        found.sort_by_key(|(used, ..)| *used);
        found
            .into_iter()
            .map(|(_, version, files)| (version, files))
            .collect()
    }

    /// Returns the files that are there, by their hashes.
    fn known(&self) -> BTreeMap<String, PathBuf> {
        let versions = self.versions().into_iter();
        let files = versions.flat_map(|(version, files)| {
            let folder = self.root.join(version);
            files
                .into_iter()
                .map(move |file| (file.sha256, folder.join(file.path)))
        });
        files.collect()
    }

    /// Removes the versions used longest ago until so many bytes more have room.
    fn trim(&self, more: u64, in_use: &BTreeSet<String>) -> Result<(), CacheError> {
        let mut versions = self.versions();
        loop {
            let files = versions.iter().flat_map(|(_, files)| files);
            let each: BTreeMap<&str, u64> = files.map(|it| (&*it.sha256, it.size)).collect();
            let held: u64 = each.values().sum();
            if held.saturating_add(more) <= self.most {
                return Ok(());
            }
            let oldest = versions
                .iter()
                .position(|(version, _)| !in_use.contains(version));
            let Some(oldest) = oldest else {
                let message = format!(
                    "it has {more} bytes, {held} are in use, and the cache may hold {}",
                    self.most
                );
                return Err(CacheError::Refused(message));
            };
            let (version, _) = versions.remove(oldest);
            self.remove(&version)?;
        }
    }

    /// Removes all versions but those in use.
    pub(crate) fn keep(&self, in_use: &BTreeSet<String>) -> Result<(), CacheError> {
        for (version, _) in self.versions() {
            if !in_use.contains(&version) {
                self.remove(&version)?;
            }
        }
        Ok(())
    }

    fn remove(&self, version: &str) -> Result<(), CacheError> {
        // Without its record a version counts as absent.
        let record = self.record(version);
        fs::remove_file(&record).map_err(|error| disk(&record, error))?;
        let folder = self.root.join(version);
        fs::remove_dir_all(&folder).map_err(|error| disk(&folder, error))
    }
}

fn is_whole(path: &Path, file: &PackageFile) -> bool {
    let size = fs::metadata(path).map(|metadata| metadata.len());
    size.is_ok_and(|size| size == file.size) && sha256(path).is_ok_and(|found| found == file.sha256)
}

/// Fetches a file, from where an earlier attempt ended.
async fn fetch_file(
    source: &dyn PackageSource,
    file: &PackageFile,
    target: &Path,
) -> Result<(), CacheError> {
    let failed = |reason: String| CacheError::NotFetched {
        path: file.path.clone(),
        reason,
    };
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match fetch_rest(source, file, target).await? {
            None if is_whole(target, file) => return Ok(()),
            None => {
                // Other bytes came before.
                fs::remove_file(target).map_err(|error| disk(target, error))?;
                "its bytes have another hash".clone_into(&mut last);
            }
            Some(reason) => last = reason,
        }
    }
    Err(failed(last))
}

/// Appends the bytes that are missing. Returns the reason if they did not come.
async fn fetch_rest(
    source: &dyn PackageSource,
    file: &PackageFile,
    target: &Path,
) -> Result<Option<String>, CacheError> {
    let fault = |error| disk(target, error);
    let opened = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(target);
    let mut opened = opened.map_err(fault)?;
    let mut offset = opened.metadata().map_err(fault)?.len();
    if offset > file.size {
        opened.set_len(0).map_err(fault)?;
        offset = 0;
    }
    let mut content = match source.content(file, offset).await {
        Ok(content) => content,
        Err(reason) => return Ok(Some(reason)),
    };
    while let Some(piece) = content.next().await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(reason) => return Ok(Some(reason)),
        };
        offset = offset.saturating_add(piece.len() as u64);
        if offset > file.size {
            return Ok(Some(format!("it has more than {} bytes", file.size)));
        }
        opened.write_all(&piece).map_err(fault)?;
    }
    Ok(None)
}

/// Gives a file a second path. On a file system without links it is copied.
pub(super) fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop))
}

fn make_parent(path: &Path) -> Result<(), CacheError> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(|error| disk(parent, error))
}

fn disk(path: &Path, error: io::Error) -> CacheError {
    CacheError::Disk {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_used_longest_ago_leaves_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = PackageCache::open(folder.path().join("cache"), 100).expect("it is new");
        for (at, version) in ["a", "b", "c"].into_iter().enumerate() {
            let files = vec![PackageFile {
                path: "x".to_owned(),
                sha256: version.to_owned(),
                size: 30,
            }];
            fs::create_dir(cache.root.join(version)).expect("a folder");
            let record = cache.record(version);
            fs::write(&record, serde_json::to_vec(&files).expect("JSON")).expect("a file");
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(at as u64);
            let opened = fs::File::options().write(true).open(&record);
            opened.and_then(|it| it.set_modified(at)).expect("a time");
        }
        let in_use = BTreeSet::from(["a".to_owned()]);
        cache.trim(10, &in_use).expect("there is room");
        assert_eq!(cache.versions().len(), 3);
        cache.trim(20, &in_use).expect("one leaves");
        let left: Vec<String> = cache.versions().into_iter().map(|(it, _)| it).collect();
        assert_eq!(left, ["a", "c"]);
        assert!(!cache.root.join("b").exists());
        assert!(cache.trim(80, &in_use).is_err());
        assert_eq!(cache.versions().len(), 1);
    }
}
