//! Packages that gates assign, on disk: fetched by their hashes, kept within a limit of size.
//!
//! Invariant: a folder named by a version has exactly the files of that version, each with its hash.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::database::{DatabaseError, make_directory};
use pkgtool_base::source::{bounds, same_bytes::sha256};
use pkgtool_gate::address::GateAddress;
use pkgtool_gate::instance::{Security, fetch};
use pkgtool_gate::protocol::{AssignedServiceProto, ContentRequestProto, PackageFileProto};

/// Maximum number of files of a package.
const MAX_FILES: usize = 10_000;
/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 1024;
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
    #[error("the gate assigned a package that is refused: {0}")]
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

/// The files of a version, as they are written beside its folder.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CachedFiles(Vec<CachedFile>);

#[derive(Debug, Serialize, Deserialize)]
struct CachedFile {
    path: String,
    sha256: String,
    size: u64,
}

impl PackageCache {
    /// Opens a folder that may hold so many bytes.
    pub fn open(root: PathBuf, most: u64) -> Result<Self, CacheError> {
        make_directory(&root)?;
        // The operator chose it, whatever links lead there.
        bounds::choose(&root);
        Ok(Self { root, most })
    }

    /// Returns the folder of an assigned package, and fetches the files that are missing. Versions in use stay.
    pub async fn folder(
        &self,
        gate: (&Security, &GateAddress),
        assigned: &AssignedServiceProto,
        in_use: &BTreeSet<String>,
    ) -> Result<PathBuf, CacheError> {
        check(assigned, self.most).map_err(CacheError::Refused)?;
        let folder = self.root.join(&assigned.version);
        let record = self.record(&assigned.version);
        if record.is_file() {
            // The time of the last use.
            let touched = fs::File::open(&record).and_then(|it| it.set_modified(SystemTime::now()));
            touched.map_err(|error| disk(&record, error))?;
            return Ok(folder);
        }
        let bytes: u64 = assigned.files.iter().map(|file| file.size).sum();
        self.trim(bytes, in_use)?;
        let unfinished = self.root.join(format!("{}.part", assigned.version));
        let known = self.known();
        for file in &assigned.files {
            let target = unfinished.join(&file.path);
            make_parent(&target)?;
            let same = known.get(&file.sha256).filter(|path| path.is_file());
            if is_whole(&target, file) {
                continue;
            }
            match same {
                // A file system may have no links.
                Some(same) => fs::hard_link(same, &target)
                    .or_else(|_| fs::copy(same, &target).map(drop))
                    .map_err(|error| disk(&target, error))?,
                None => fetch_file(gate, &assigned.connection_token, file, &target).await?,
            }
        }
        fs::create_dir_all(&unfinished).map_err(|error| disk(&unfinished, error))?;
        fs::rename(&unfinished, &folder).map_err(|error| disk(&folder, error))?;
        let files = assigned.files.iter().map(|file| CachedFile {
            path: file.path.clone(),
            sha256: file.sha256.clone(),
            size: file.size,
        });
        let text = serde_json::to_vec(&CachedFiles(files.collect())).unwrap_or_default();
        fs::write(&record, text).map_err(|error| disk(&record, error))?;
        Ok(folder)
    }

    fn record(&self, version: &str) -> PathBuf {
        self.root.join(format!("{version}.json"))
    }

    /// Returns the versions that are there, the one used longest ago first.
    fn versions(&self) -> Vec<(String, CachedFiles)> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_suffix(".json")?.to_owned();
            let used = entry.metadata().ok()?.modified().ok()?;
            let files = serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()?;
            Some((used, version, files))
        });
        let mut found: Vec<(SystemTime, String, CachedFiles)> = found.collect();
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
                .0
                .into_iter()
                .map(move |file| (file.sha256, folder.join(file.path)))
        });
        files.collect()
    }

    /// Removes the versions used longest ago until so many bytes more have room.
    fn trim(&self, more: u64, in_use: &BTreeSet<String>) -> Result<(), CacheError> {
        let mut versions = self.versions();
        loop {
            let files = versions.iter().flat_map(|(_, files)| &files.0);
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
            // Without its record a version counts as absent.
            let record = self.record(&version);
            fs::remove_file(&record).map_err(|error| disk(&record, error))?;
            let folder = self.root.join(version);
            fs::remove_dir_all(&folder).map_err(|error| disk(&folder, error))?;
        }
    }
}

/// Checks an assignment: names, hashes and sizes.
fn check(assigned: &AssignedServiceProto, most: u64) -> Result<(), String> {
    let is_hash = |text: &str| {
        text.len() == 64
            && text
                .bytes()
                .all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
    };
    if !is_hash(&assigned.version) {
        return Err(format!(
            "`{}` is no version",
            assigned.version.escape_debug()
        ));
    }
    if assigned.files.len() > MAX_FILES {
        return Err(format!("it has more than {MAX_FILES} files"));
    }
    let mut bytes = 0_u64;
    let mut paths = BTreeSet::new();
    for file in &assigned.files {
        let path = Path::new(&file.path);
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        let is_path = !file.path.is_empty()
            && file.path.len() <= MAX_PATH_BYTES
            && !file.path.contains(['\\', ':', '\0'])
            && path.components().all(is_plain);
        if !is_path || !paths.insert(&file.path) {
            return Err(format!(
                "`{}` is no path, or a path twice",
                file.path.escape_debug()
            ));
        }
        if !is_hash(&file.sha256) {
            return Err(format!("`{}` has no SHA-256", file.path));
        }
        bytes = bytes.saturating_add(file.size);
    }
    if bytes > most {
        return Err(format!(
            "it has {bytes} bytes, and the cache may hold {most}"
        ));
    }
    Ok(())
}

fn is_whole(path: &Path, file: &PackageFileProto) -> bool {
    let size = fs::metadata(path).map(|metadata| metadata.len());
    size.is_ok_and(|size| size == file.size) && sha256(path).is_ok_and(|found| found == file.sha256)
}

/// Fetches a file, from where an earlier attempt ended.
async fn fetch_file(
    gate: (&Security, &GateAddress),
    token: &str,
    file: &PackageFileProto,
    target: &Path,
) -> Result<(), CacheError> {
    let failed = |reason: String| CacheError::NotFetched {
        path: file.path.clone(),
        reason,
    };
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match fetch_rest(gate, token, file, target).await? {
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
    (security, gate): (&Security, &GateAddress),
    token: &str,
    file: &PackageFileProto,
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
    let request = ContentRequestProto {
        connection_token: token.to_owned(),
        sha256: file.sha256.clone(),
        offset,
    };
    let mut content = match fetch(security, gate, request).await {
        Ok(content) => content,
        Err(error) => return Ok(Some(error.to_string())),
    };
    loop {
        match content.next().await {
            Ok(Some(piece)) => {
                offset = offset.saturating_add(piece.len() as u64);
                if offset > file.size {
                    return Ok(Some(format!("it has more than {} bytes", file.size)));
                }
                opened.write_all(&piece).map_err(fault)?;
            }
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(error.to_string())),
        }
    }
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

    fn assigned(files: &[(&str, u64)]) -> AssignedServiceProto {
        let files = files.iter().map(|(path, size)| PackageFileProto {
            path: (*path).to_owned(),
            sha256: "0".repeat(64),
            size: *size,
        });
        AssignedServiceProto {
            version: "a".repeat(64),
            files: files.collect(),
            ..AssignedServiceProto::default()
        }
    }

    #[test]
    fn what_leads_out_of_the_folder_is_refused() {
        assert_eq!(check(&assigned(&[("onnx/config.json", 9)]), 10), Ok(()));
        for path in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a/./b/..",
            "C:x",
            "a\\b",
            "a\0b",
        ] {
            assert!(check(&assigned(&[(path, 1)]), 10).is_err(), "{path}");
        }
        assert!(check(&assigned(&[("a", 9), ("b", 2)]), 10).is_err());
        assert!(check(&assigned(&[("a", u64::MAX), ("b", 2)]), 10).is_err());
        assert!(check(&assigned(&[("a", 1), ("a", 1)]), 10).is_err());
        let long = "x".repeat(2000);
        assert!(check(&assigned(&[(&long, 1)]), 10).is_err());
        for version in ["", "..", "A", &"g".repeat(64)] {
            let wrong = AssignedServiceProto {
                version: version.to_owned(),
                ..assigned(&[])
            };
            assert!(check(&wrong, 10).is_err(), "{version}");
        }
    }

    #[test]
    fn the_version_used_longest_ago_leaves_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = PackageCache::open(folder.path().join("cache"), 100).expect("it is new");
        for (at, version) in ["a", "b", "c"].into_iter().enumerate() {
            let files = CachedFiles(vec![CachedFile {
                path: "x".to_owned(),
                sha256: version.to_owned(),
                size: 30,
            }]);
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
