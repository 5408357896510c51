//! What is known of referenced files: looked at once a run, however many configs share them.
//!
//! Invariant: of a model only its header is read; of a small file only what tells a Git LFS
//! pointer; of a JSON file its text as a stream, never held whole.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use walkdir::WalkDir;

use crate::model::{self, ModelError, ModelInfo};
use crate::source::{FileSource, lfs};

/// Most entries of a model directory (`.mlpackage`) that are counted.
const MAX_DIRECTORY_ENTRIES: usize = 100_000;
/// Longest JSON file that is checked, in bytes; the largest tokenizers have some tens of MB.
const MAX_JSON: u64 = 512 * 1024 * 1024;

/// The facts about one referenced file.
#[derive(Debug)]
pub(super) struct FileFacts {
    /// Its path.
    pub(super) path: PathBuf,
    /// What is there.
    pub(super) state: FileState,
    /// What it says as a model; `None` unless it is one that was opened.
    pub(super) model: Option<ModelFacts>,
    json: OnceLock<Result<(), String>>,
}

/// What stands at a path.
#[derive(Debug)]
pub(super) enum FileState {
    /// Nothing.
    Missing,
    /// Something that can't be looked at, or is neither file nor directory: the reason.
    Unreadable(String),
    /// A directory, with the size of all files in it; some model formats are directories.
    Directory(u64),
    /// A file of no bytes.
    Empty,
    /// A Git LFS pointer.
    LfsPointer(lfs::Pointer),
    /// A file of this size in bytes.
    File(u64),
}

/// A file as a model.
#[derive(Debug)]
pub(super) enum ModelFacts {
    /// Its format is not one that is read here.
    UnknownFormat,
    /// It claims a format that is read here but is broken.
    Broken(ModelError),
    /// What its header says.
    Read(Box<ModelInfo>),
}

/// Facts by path, shared by all files of a run.
pub(super) struct FileCache {
    open_models: bool,
    #[expect(
        clippy::type_complexity,
        reason = "path → (as model?) → facts, made once"
    )]
    facts: Mutex<HashMap<(PathBuf, bool), Arc<OnceLock<Arc<FileFacts>>>>>,
}

impl FileCache {
    pub(super) fn new(open_models: bool) -> Self {
        Self {
            open_models,
            facts: Mutex::default(),
        }
    }

    pub(super) fn opens_models(&self) -> bool {
        self.open_models
    }

    /// The facts about the file at `path`.
    pub(super) fn facts(&self, path: &Path, is_model: bool) -> Arc<FileFacts> {
        let cell = {
            let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
            let cell = facts.entry((path.to_owned(), is_model)).or_default();
            Arc::clone(cell)
        };
        let look = || Arc::new(FileFacts::look(path, is_model && self.open_models));
        Arc::clone(cell.get_or_init(look))
    }
}

impl FileFacts {
    fn look(path: &Path, open_model: bool) -> Self {
        let state = FileState::look(path);
        let model = match state {
            FileState::File(_) if open_model => Some(ModelFacts::read(path)),
            FileState::Directory(_) if open_model => Some(ModelFacts::UnknownFormat),
            _ => None,
        };
        Self {
            path: path.to_owned(),
            state,
            model,
            json: OnceLock::new(),
        }
    }

    /// Whether the file is JSON; read once, as a stream.
    pub(super) fn json(&self) -> &Result<(), String> {
        self.json
            .get_or_init(|| check_json(&self.path).map_err(|error| error.to_string()))
    }

    /// Size in bytes; a pointer's is that of the file it stands for.
    pub(super) fn size(&self) -> Option<u64> {
        match &self.state {
            FileState::Missing | FileState::Unreadable(_) => None,
            FileState::Empty => Some(0),
            FileState::LfsPointer(pointer) => Some(pointer.size),
            FileState::Directory(size) | FileState::File(size) => Some(*size),
        }
    }
}

impl FileState {
    fn look(path: &Path) -> Self {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if is_missing(&error) => return Self::Missing,
            Err(error) => return Self::Unreadable(error.to_string()),
        };
        if metadata.is_dir() {
            return Self::Directory(directory_size(path));
        }
        if !metadata.is_file() {
            return Self::Unreadable("neither a file nor a directory".to_owned());
        }
        match metadata.len() {
            0 => Self::Empty,
            size if size <= lfs::MAX_POINTER_SIZE => match read_small(path) {
                Ok(bytes) => lfs::Pointer::parse(&bytes).map_or(Self::File(size), Self::LfsPointer),
                Err(error) => Self::Unreadable(error.to_string()),
            },
            size => Self::File(size),
        }
    }
}

impl ModelFacts {
    fn read(path: &Path) -> Self {
        let source = match FileSource::open(path) {
            Ok(source) => source,
            Err(error) => return Self::Broken(error.into()),
        };
        match model::inspect(path, &source) {
            Ok(Some(info)) => Self::Read(Box::new(info)),
            Ok(None) => Self::UnknownFormat,
            Err(error) => Self::Broken(error),
        }
    }

    /// The header's content, if it could be read.
    pub(super) fn info(&self) -> Option<&ModelInfo> {
        match self {
            Self::Read(info) => Some(info),
            Self::UnknownFormat | Self::Broken(_) => None,
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    // A file where a directory is needed, a name that is too long: nothing can be there.
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename
    )
}

fn directory_size(path: &Path) -> u64 {
    let entries = WalkDir::new(path).into_iter().take(MAX_DIRECTORY_ENTRIES);
    let files = entries
        .flatten()
        .filter(|entry| entry.file_type().is_file());
    files
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(lfs::MAX_POINTER_SIZE + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn check_json(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > MAX_JSON {
        return Err(io::Error::other(format!(
            "{size} bytes are too many for a tokenizer file (limit {MAX_JSON})"
        )));
    }
    serde_json::from_reader::<_, AnyJson>(BufReader::new(file.take(MAX_JSON)))?;
    Ok(())
}

/// Any JSON value, read whole and forgotten. `IgnoredAny` would skip strings unread, and with them
/// bytes that are not UTF-8.
struct AnyJson;

impl<'de> Deserialize<'de> for AnyJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for AnyJson {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}
