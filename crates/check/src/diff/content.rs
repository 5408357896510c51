//! The content of a referenced file or folder, and its comparison between two versions.
//!
//! Invariant: bytes are compared as streams, and only if the sizes are equal.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use pkgtool_base::source::lfs::{self, Pointer};
use pkgtool_base::source::same_bytes::{same_bytes, sha256};
use pkgtool_base::source::{self, elsewhere};
use pkgtool_model::folder_size;

/// Maximum number of compared files in a folder.
const MAX_FILES: usize = 10_000;

/// The content at a path.
#[derive(Debug, Clone)]
pub(super) enum PathContent {
    /// Missing or unreadable; holds the reason.
    Missing(String),
    /// A Git LFS pointer.
    Pointer(Pointer),
    /// A file, with its size in bytes.
    File(PathBuf, u64),
    /// A folder, with the total size of its files in bytes.
    Folder(PathBuf, u64),
    /// A file of which only the size in bytes is known.
    Unread(u64),
}

impl PathContent {
    /// Inspects a path.
    pub(super) fn look(path: &Path) -> Self {
        let metadata = match source::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Self::Missing("it does not exist".to_owned());
            }
            Err(error) => return Self::Missing(error.to_string()),
        };
        if metadata.is_dir() {
            return Self::Folder(path.to_owned(), folder_size(path));
        }
        if !metadata.is_file() {
            return Self::Missing("neither a file nor a directory".to_owned());
        }
        let size = metadata.len();
        if size <= lfs::MAX_POINTER_SIZE
            && let Ok(bytes) = bounded(path, lfs::MAX_POINTER_SIZE)
            && let Some(pointer) = Pointer::parse(&bytes)
        {
            return Self::Pointer(pointer);
        }
        Self::File(path.to_owned(), size)
    }

    /// Returns the size in bytes; for a Git LFS pointer, the size of the file that it replaces.
    pub(super) fn size(&self) -> Option<u64> {
        match self {
            Self::Missing(_) => None,
            Self::Pointer(pointer) => Some(pointer.size),
            Self::File(_, size) | Self::Folder(_, size) | Self::Unread(size) => Some(*size),
        }
    }

    /// Returns whether the content exists.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self, Self::Missing(_))
    }

    /// Returns the path of a file or folder that is present itself.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path, _) | Self::Folder(path, _) => Some(path),
            _ => None,
        }
    }

    /// Returns whether the bytes are on a remote server.
    fn is_far(&self) -> bool {
        self.path().is_some_and(elsewhere::is_remote)
    }

    /// Returns whether both have the same content; `None` if unknown. Bytes are read only if `deep`
    /// is set.
    pub(super) fn is_same(&self, other: &Self, deep: bool) -> Option<bool> {
        if self.size()? != other.size()? {
            return Some(false);
        }
        if self.is_far() || other.is_far() {
            return same_digest(self.path()?, other.path()?);
        }
        match (self, other) {
            (Self::Pointer(a), Self::Pointer(b)) => Some(a.oid == b.oid),
            (Self::Pointer(pointer), Self::File(path, _))
            | (Self::File(path, _), Self::Pointer(pointer))
                if deep =>
            {
                let hash = pointer.oid.strip_prefix("sha256:")?;
                Some(sha256(path).ok()?.eq_ignore_ascii_case(hash))
            }
            (Self::File(a, _), Self::File(b, _)) if deep => is_same_content(a, b).ok(),
            (Self::Folder(a, _), Self::Folder(b, _)) if deep => same_folders(a, b),
            _ => None,
        }
    }
}

/// Compares the digests that the servers report; `None` for folders.
fn same_digest(one: &Path, other: &Path) -> Option<bool> {
    Some(elsewhere::digest(one)? == elsewhere::digest(other)?)
}

/// Returns the bytes of a file, if it has at most `limit` bytes.
pub(super) fn bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source::open(path)?
        .take(limit + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

fn is_same_content(one: &Path, other: &Path) -> io::Result<bool> {
    Ok(one == other || same_bytes(one, other)?)
}

fn same_folders(one: &Path, other: &Path) -> Option<bool> {
    let (mine, theirs) = (files_below(one)?, files_below(other)?);
    if mine != theirs {
        return Some(false);
    }
    for path in &mine {
        if !is_same_content(&one.join(path), &other.join(path)).ok()? {
            return Some(false);
        }
    }
    Some(true)
}

/// Returns the paths of the files in a folder, sorted; `None` if there are too many or one is
/// inaccessible.
fn files_below(folder: &Path) -> Option<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let entry = entry.ok()?;
        if entry.file_type().is_dir() {
            continue;
        }
        if files.len() >= MAX_FILES {
            return None;
        }
        files.push(entry.path().strip_prefix(folder).ok()?.to_owned());
    }
    Some(files)
}
