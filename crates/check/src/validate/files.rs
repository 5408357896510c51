//! Facts about the files that configs reference: existence, size, JSON keys and model header.
//!
//! Each file is inspected once per validation, however many configs share it. Invariant: only the
//! header of a model is read, only enough of a small file to detect a Git LFS pointer, and a JSON
//! file is streamed, never loaded whole.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::kept::FactCache;
use super::tokenizer::{self, InvalidJson, RootKeys};
use pkgtool_base::source::hashed::Map;
use pkgtool_base::source::same_bytes::same_bytes;
use pkgtool_base::source::{self, elsewhere, lfs};
use pkgtool_model::precision::ModelWeights;
use pkgtool_model::{self as model, ModelError, ModelInfo};

/// Maximum number of remembered comparisons per file.
const MAX_REMEMBERED_COMPARISONS: usize = 64;

/// Typical number of files per config.
const FILES_OF_CONFIG: usize = 3;
/// Maximum number of files for which room is reserved in advance.
const MAX_RESERVED: usize = 100_000;

/// The facts about one referenced file.
#[derive(Debug)]
pub struct FileFacts {
    /// Its path.
    pub path: PathBuf,
    /// The state of the path.
    pub state: FileState,
    /// The file as a model; `None` unless it is a model that was opened.
    pub model: Option<ModelFacts>,
    json: OnceLock<Box<Result<RootKeys, InvalidJson>>>,
    weights: OnceLock<Option<Box<ModelWeights>>>,
    /// A number unique within the process.
    number: u64,
    /// Numbers of the facts already compared with these, and whether the content was the same.
    compared: Mutex<Vec<(u64, bool)>>,
}

/// The state of a path in the file system.
#[derive(Debug)]
pub enum FileState {
    /// The path does not exist.
    Missing,
    /// A symbolic link whose target, this path, does not exist.
    Dangling(PathBuf),
    /// Inaccessible, or neither a file nor a directory; holds the reason.
    Unreadable(String),
    /// A directory, with the total size of its files in bytes. Some model formats are directories.
    Directory(u64),
    /// An empty file.
    Empty,
    /// A Git LFS pointer.
    LfsPointer(lfs::Pointer),
    /// A file of this size in bytes.
    File(u64),
}

/// A file interpreted as a model.
#[derive(Debug)]
pub enum ModelFacts {
    /// The format is unsupported.
    UnknownFormat,
    /// The format is supported, but the file is invalid.
    Broken(ModelError),
    /// The content of the header.
    Read(Box<ModelInfo>),
}

/// Facts by path, shared by all files of a validation.
pub(super) struct FileCache {
    open_models: bool,
    /// Facts from earlier validations of the same session.
    kept: Option<Arc<FactCache<FileFacts>>>,
    #[expect(
        clippy::type_complexity,
        reason = "path → (as model?) → facts, made once"
    )]
    facts: Mutex<Map<(OsString, bool), Arc<OnceLock<Arc<FileFacts>>>>>,
}

impl FileCache {
    pub(super) fn new(open_models: bool) -> Self {
        Self {
            open_models,
            kept: None,
            facts: Mutex::default(),
        }
    }

    /// Reserves room for the files of this number of configs.
    pub(super) fn reserve(&self, configs: usize) {
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        facts.reserve(configs.saturating_mul(FILES_OF_CONFIG).min(MAX_RESERVED));
    }

    /// Creates a cache that asks `kept` first.
    pub(super) fn with_fact_cache(open_models: bool, kept: Arc<FactCache<FileFacts>>) -> Self {
        Self {
            kept: Some(kept),
            ..Self::new(open_models)
        }
    }

    pub(super) fn opens_models(&self) -> bool {
        self.open_models
    }

    /// Returns the facts about the file at `path`.
    pub(super) fn facts(&self, path: PathBuf, is_model: bool) -> Arc<FileFacts> {
        let cell = {
            let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
            let cell = facts.entry((path.clone().into(), is_model)).or_default();
            Arc::clone(cell)
        };
        let opens = is_model && self.open_models;
        let look = || match &self.kept {
            Some(kept) => kept.facts(&path, opens, || FileFacts::look(path.clone(), opens)),
            None => Arc::new(FileFacts::look(path, opens)),
        };
        Arc::clone(cell.get_or_init(look))
    }
}

impl FileFacts {
    pub(super) fn look(path: PathBuf, open_model: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let state = FileState::look(&path);
        let model = match state {
            FileState::File(_) | FileState::Directory(_) if open_model => {
                Some(ModelFacts::read(&path))
            }
            _ => None,
        };
        Self {
            path,
            state,
            model,
            json: OnceLock::new(),
            weights: OnceLock::new(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            compared: Mutex::default(),
        }
    }

    /// Returns the root keys of a JSON file, or why it is invalid. The file is streamed once.
    pub(super) fn json(&self) -> &Result<RootKeys, InvalidJson> {
        let cause = |error| tokenizer::cause(&self.path, &error);
        let read = || tokenizer::read(&self.path).map_err(cause);
        self.json.get_or_init(|| Box::new(read()))
    }

    /// Returns the precision of the weights if the file is a model that was read. Computed once.
    pub(super) fn weights(&self) -> Option<&ModelWeights> {
        let look = || {
            let info = self.model.as_ref()?.info()?;
            Some(Box::new(ModelWeights::of(&self.path, info)))
        };
        self.weights.get_or_init(look).as_deref()
    }

    /// Returns whether the path does not exist.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.state, FileState::Missing | FileState::Dangling(_))
    }

    /// Returns whether there is a file whose content can be read.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.state, FileState::File(_) | FileState::LfsPointer(_))
    }

    /// Returns whether the file is a Git LFS pointer.
    pub(super) fn is_pointer(&self) -> bool {
        matches!(self.state, FileState::LfsPointer(_))
    }

    /// Returns whether two files have the same content. Bytes are read only if the sizes are equal.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.state, &other.state) {
            (FileState::File(a), FileState::File(b)) => a == b && self.has_bytes_of(other),
            (FileState::LfsPointer(a), FileState::LfsPointer(b)) => a == b,
            _ => false,
        }
    }

    /// Compares the content of two files as far as it can be read. Two files are compared only
    /// once.
    fn has_bytes_of(&self, other: &Self) -> bool {
        let compared = || self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        let known = compared().iter().find(|one| one.0 == other.number).copied();
        if let Some((_, same)) = known {
            return same;
        }
        let same = same_content(&self.path, &other.path).unwrap_or(false);
        let mut compared = compared();
        if compared.len() < MAX_REMEMBERED_COMPARISONS {
            compared.push((other.number, same));
        }
        same
    }

    /// Returns the model's header, if it was read.
    pub fn model_info(&self) -> Option<&ModelInfo> {
        self.model.as_ref()?.info()
    }

    /// Returns the size in bytes; for a Git LFS pointer, the size of the file that it replaces.
    pub fn size(&self) -> Option<u64> {
        match &self.state {
            FileState::Missing | FileState::Dangling(_) | FileState::Unreadable(_) => None,
            FileState::Empty => Some(0),
            FileState::LfsPointer(pointer) => Some(pointer.size),
            FileState::Directory(size) | FileState::File(size) => Some(*size),
        }
    }
}

impl FileState {
    fn look(path: &Path) -> Self {
        let metadata = match source::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if is_missing(&error) => {
                return fs::read_link(path).map_or(Self::Missing, Self::Dangling);
            }
            Err(error) => return Self::Unreadable(error.to_string()),
        };
        if metadata.is_dir() {
            return Self::Directory(model::folder_size(path));
        }
        if !metadata.is_file() {
            return Self::Unreadable("neither a file nor a directory".to_owned());
        }
        match metadata.len() {
            0 => Self::Empty,
            size if size <= lfs::MAX_POINTER_SIZE => {
                match source::read(path, lfs::MAX_POINTER_SIZE) {
                    Ok(bytes) => {
                        lfs::Pointer::parse(&bytes).map_or(Self::File(size), Self::LfsPointer)
                    }
                    Err(error) => Self::Unreadable(error.to_string()),
                }
            }
            size => Self::File(size),
        }
    }
}

impl ModelFacts {
    fn read(path: &Path) -> Self {
        match model::inspect_at(path) {
            Ok(Some(info)) => Self::Read(Box::new(info)),
            Ok(None) => Self::UnknownFormat,
            Err(error) => Self::Broken(error),
        }
    }

    /// Returns the header's content, if it could be read.
    pub(super) fn info(&self) -> Option<&ModelInfo> {
        match self {
            Self::Read(info) => Some(info),
            Self::UnknownFormat | Self::Broken(_) => None,
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    // A file in place of a directory, or a name that is too long: no file can exist at such a path.
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename
    )
}

fn same_content(one: &Path, other: &Path) -> io::Result<bool> {
    if elsewhere::is_remote(one) {
        // Comparing bytes would download the weights.
        let digest = elsewhere::digest(one);
        return Ok(digest.is_some() && digest == elsewhere::digest(other));
    }
    same_bytes(one, other)
}
