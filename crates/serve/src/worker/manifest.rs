//! The files of packages that are sent to workers, with their hashes.
//!
//! Invariant: a file is hashed again only if its size or its time of change differs.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use pkgtool_base::source::same_bytes::sha256;
use pkgtool_gate::protocol::PackageFileProto;
use sha2::{Digest, Sha256};

/// Maximum number of files of a package.
const MAX_FILES: usize = 10_000;

/// The files of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackageManifest {
    /// Changes with the files.
    pub(super) version: String,
    pub(super) root: PathBuf,
    pub(super) files: Vec<PackageFileProto>,
}

/// The hashes of files that were read before.
#[derive(Debug, Default)]
pub(super) struct FileHashes(Mutex<HashMap<PathBuf, HashedFile>>);

#[derive(Debug, Clone)]
struct HashedFile {
    size: u64,
    modified: Option<SystemTime>,
    sha256: String,
}

impl PackageManifest {
    /// Returns the path of a file, if the package has one with this hash.
    pub(super) fn file(&self, sha256: &str) -> Option<PathBuf> {
        let found = self.files.iter().find(|file| file.sha256 == sha256)?;
        Some(self.root.join(&found.path))
    }

    /// Returns the size of all files, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

impl FileHashes {
    /// Reads the files of a package. Blocks while files are hashed.
    pub(super) fn manifest(&self, paths: &[PathBuf]) -> io::Result<Arc<PackageManifest>> {
        if paths.len() > MAX_FILES {
            let message = format!("the package has more than {MAX_FILES} files");
            return Err(io::Error::other(message));
        }
        let root = common_folder(paths).ok_or_else(|| io::Error::other("it has no files"))?;
        let mut files = Vec::new();
        for file in paths {
            let below = file.strip_prefix(&root).map_err(io::Error::other)?;
            let names: Option<Vec<&str>> = below.iter().map(|name| name.to_str()).collect();
            let names = names.ok_or_else(|| io::Error::other("a name is no text"))?;
            let hashed = self.hashed(file)?;
            files.push(PackageFileProto {
                path: names.join("/"),
                sha256: hashed.sha256,
                size: hashed.size,
            });
        }
        let mut version = Sha256::new();
        for file in &files {
            version.update(format!("{}\0{}\0", file.path, file.sha256));
        }
        Ok(Arc::new(PackageManifest {
            version: hex(&version.finalize()),
            root,
            files,
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
    pub(super) fn keep<'f>(&self, files: impl Iterator<Item = &'f PathBuf>) {
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

/// Returns bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
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
        let first = hashes.manifest(&paths).expect("they are readable");
        let names: Vec<&str> = first.files.iter().map(|file| &*file.path).collect();
        assert_eq!(names, ["onnx/model.onnx", "tokenizer.json"]);
        assert_eq!(first.bytes(), 9);
        let file = first.file(&first.files[0].sha256);
        assert_eq!(file, Some(root.join("onnx/model.onnx")));
        assert_eq!(first.file("00"), None);
        assert_eq!(hashes.manifest(&paths).expect("they are readable"), first);
        fs::write(root.join("tokenizer.json"), "{ }").expect("a file");
        let second = hashes.manifest(&paths).expect("they are readable");
        assert_ne!(second.version, first.version);
        assert_eq!(second.files[0], first.files[0]);
        assert!(hashes.manifest(&[]).is_err());
        assert!(hashes.manifest(&[root.join("absent")]).is_err());
        hashes.keep([].iter());
        assert!(hashes.known().is_empty());
    }
}
