//! The files of a package by their hashes: what is sent to workers, and what is published.
//!
//! Invariant: a file is hashed again only if its size or its time of change differs. The version of a manifest is the
//! hash of all paths and hashes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use pkgtool_base::source::same_bytes::sha256;
use pkgtool_base::source::text::hexadecimal;
use pkgtool_gate::protocol::PackageFileProto;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Maximum number of files of a package.
const MAX_FILES: usize = 10_000;
/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 1024;

/// A file of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackageFile {
    /// Path in the package, with `/` between names.
    pub(crate) path: String,
    /// SHA-256 of the bytes, in hexadecimal digits.
    pub(crate) sha256: String,
    pub(crate) size: u64,
}

/// The files of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackageManifest {
    /// Changes with the files.
    pub(crate) version: String,
    pub(crate) files: Vec<PackageFile>,
}

/// A package on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalPackage {
    pub(crate) root: PathBuf,
    pub(crate) manifest: PackageManifest,
}

/// The hashes of files that were read before.
#[derive(Debug, Default)]
pub(crate) struct FileHashes(Mutex<HashMap<PathBuf, HashedFile>>);

#[derive(Debug, Clone)]
struct HashedFile {
    size: u64,
    modified: Option<SystemTime>,
    sha256: String,
}

impl From<&PackageFileProto> for PackageFile {
    fn from(file: &PackageFileProto) -> Self {
        Self {
            path: file.path.clone(),
            sha256: file.sha256.clone(),
            size: file.size,
        }
    }
}

impl From<&PackageFile> for PackageFileProto {
    fn from(file: &PackageFile) -> Self {
        Self {
            path: file.path.clone(),
            sha256: file.sha256.clone(),
            size: file.size,
        }
    }
}

impl LocalPackage {
    /// Returns the path of a file, if the package has one with this hash.
    pub(crate) fn file(&self, sha256: &str) -> Option<PathBuf> {
        let mut files = self.manifest.files.iter();
        let found = files.find(|file| file.sha256 == sha256)?;
        Some(self.root.join(&found.path))
    }
}

impl PackageManifest {
    fn of(files: Vec<PackageFile>) -> Self {
        Self {
            version: version_of(&files),
            files,
        }
    }

    /// Returns the size of all files, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.files
            .iter()
            .fold(0, |sum, file| sum.saturating_add(file.size))
    }

    /// Checks what another machine sent: names, hashes, and at most so many bytes.
    pub(crate) fn check(&self, most: u64) -> Result<(), String> {
        if !is_hash(&self.version) {
            return Err(format!("`{}` is no version", self.version.escape_debug()));
        }
        if self.files.len() > MAX_FILES {
            return Err(format!("it has more than {MAX_FILES} files"));
        }
        let mut paths = BTreeSet::new();
        for file in &self.files {
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
                return Err(format!("`{}` has no SHA-256", file.path.escape_debug()));
            }
        }
        let bytes = self.bytes();
        if bytes > most {
            return Err(format!("it has {bytes} bytes; at most {most} have room"));
        }
        Ok(())
    }

    /// Returns whether the version is that of the files.
    pub(crate) fn is_consistent(&self) -> bool {
        self.version == version_of(&self.files)
    }
}

fn version_of(files: &[PackageFile]) -> String {
    let mut version = Sha256::new();
    for file in files {
        version.update(format!("{}\0{}\0", file.path, file.sha256));
    }
    hexadecimal(&version.finalize())
}

fn is_hash(text: &str) -> bool {
    let is_digit = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
    text.len() == 64 && text.bytes().all(is_digit)
}

impl FileHashes {
    /// Reads the files of a package; its root is the deepest folder that has all of them. Blocks while files are hashed.
    pub(crate) fn package(&self, paths: &[PathBuf]) -> io::Result<Arc<LocalPackage>> {
        let root = common_folder(paths).ok_or_else(|| io::Error::other("it has no files"))?;
        self.package_below(root, paths)
    }

    /// Reads the files of a package below its root. Blocks while files are hashed.
    pub(crate) fn package_below(
        &self,
        root: PathBuf,
        paths: &[PathBuf],
    ) -> io::Result<Arc<LocalPackage>> {
        if paths.len() > MAX_FILES {
            let message = format!("the package has more than {MAX_FILES} files");
            return Err(io::Error::other(message));
        }
        let mut files = Vec::new();
        for file in paths {
            let below = file.strip_prefix(&root).map_err(io::Error::other)?;
            let names: Option<Vec<&str>> = below.iter().map(|name| name.to_str()).collect();
            let names = names.ok_or_else(|| io::Error::other("a name is no text"))?;
            let hashed = self.hashed(file);
            let hashed = hashed.map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", file.display()))
            })?;
            files.push(PackageFile {
                path: names.join("/"),
                sha256: hashed.sha256,
                size: hashed.size,
            });
        }
        Ok(Arc::new(LocalPackage {
            root,
            manifest: PackageManifest::of(files),
        }))
    }

    fn hashed(&self, path: &Path) -> io::Result<HashedFile> {
        let metadata = fs::metadata(path)?;
        let (size, modified) = (metadata.len(), metadata.modified().ok());
        let known = self.known().get(path).cloned();
        if let Some(known) = known
            && (known.size, known.modified) == (size, modified)
        {
            return Ok(known);
        }
        let hashed = HashedFile {
            size,
            modified,
            sha256: sha256(path)?,
        };
        self.known().insert(path.to_owned(), hashed.clone());
        Ok(hashed)
    }

    /// Forgets all files but these.
    pub(crate) fn keep<'f>(&self, files: impl Iterator<Item = &'f PathBuf>) {
        let files: HashSet<&PathBuf> = files.collect();
        self.known().retain(|path, _| files.contains(path));
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, HashedFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the deepest folder that has all these files.
fn common_folder(files: &[PathBuf]) -> Option<PathBuf> {
    let (first, others) = files.split_first()?;
    let mut folder = first.parent()?;
    while !others.iter().all(|file| file.starts_with(folder)) {
        folder = folder.parent()?;
    }
    Some(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_changes_with_the_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        fs::create_dir(root.join("onnx")).expect("a folder");
        fs::write(root.join("onnx/model.onnx"), "weights").expect("a file");
        fs::write(root.join("tokenizer.json"), "{}").expect("a file");
        let paths = ["onnx/model.onnx", "tokenizer.json"].map(|name| root.join(name));
        let hashes = FileHashes::default();
        let first = hashes.package(&paths).expect("they are readable");
        let names: Vec<&str> = first
            .manifest
            .files
            .iter()
            .map(|file| &*file.path)
            .collect();
        assert_eq!(names, ["onnx/model.onnx", "tokenizer.json"]);
        assert_eq!(first.manifest.bytes(), 9);
        let file = first.file(&first.manifest.files[0].sha256);
        assert_eq!(file, Some(root.join("onnx/model.onnx")));
        assert_eq!(first.file("00"), None);
        assert_eq!(hashes.package(&paths).expect("they are readable"), first);
        fs::write(root.join("tokenizer.json"), "{ }").expect("a file");
        let second = hashes.package(&paths).expect("they are readable");
        assert_ne!(second.manifest.version, first.manifest.version);
        assert_eq!(second.manifest.files[0], first.manifest.files[0]);
        assert!(second.manifest.is_consistent());
        assert!(hashes.package(&[]).is_err());
        assert!(hashes.package(&[root.join("absent")]).is_err());
        hashes.keep([].iter());
        assert!(hashes.known().is_empty());
    }

    fn manifest(files: &[(&str, u64)]) -> PackageManifest {
        let files = files.iter().map(|(path, size)| PackageFile {
            path: (*path).to_owned(),
            sha256: "0".repeat(64),
            size: *size,
        });
        PackageManifest::of(files.collect())
    }

    #[test]
    fn what_leads_out_of_the_folder_is_refused() {
        assert_eq!(manifest(&[("onnx/config.json", 9)]).check(10), Ok(()));
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
            assert!(manifest(&[(path, 1)]).check(10).is_err(), "{path}");
        }
        assert!(manifest(&[("a", 9), ("b", 2)]).check(10).is_err());
        assert!(manifest(&[("a", u64::MAX), ("b", 2)]).check(10).is_err());
        assert!(manifest(&[("a", 1), ("a", 1)]).check(10).is_err());
        let long = "x".repeat(2000);
        assert!(manifest(&[(&long, 1)]).check(10).is_err());
        for version in ["", "..", "A", &"g".repeat(64)] {
            let wrong = PackageManifest {
                version: version.to_owned(),
                files: Vec::new(),
            };
            assert!(wrong.check(10).is_err(), "{version}");
            assert!(!wrong.is_consistent(), "{version}");
        }
    }
}
