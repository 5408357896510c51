//! Where the files of a model are: in a `.mlpackage` as its manifest says, else the `.mlmodel` itself.
//!
//! Invariant: what is opened lies in the folder by its text, and weights also by what links make of it. A link of
//! the model file is followed: download caches are built of such links, and weights may lie beside its target.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use walkdir::WalkDir;

use super::error::Error;
use crate::package::reference;
use crate::source::lfs::{self, Pointer};
use crate::source::{self, FileSource, ReadAt};

/// The largest manifest.
const MAX_MANIFEST: u64 = 1 << 20;
/// Most entries of a manifest.
const MAX_ENTRIES: usize = 1 << 10;
/// The folder that entries of a manifest are in.
const DATA: &str = "Data";
/// What paths of weight files begin with.
const MODEL_FOLDER: &str = "@model_path/";
/// Most files of a folder that are counted.
const MAX_FILES: usize = 100_000;

/// The files of a model.
#[derive(Debug)]
pub(super) struct Place {
    /// The folder of which names are told.
    root: PathBuf,
    model: PathBuf,
    name: String,
}

/// What a manifest says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    item_info_entries: BTreeMap<String, Item>,
    root_model_identifier: String,
}

#[derive(Debug, Deserialize)]
struct Item {
    path: String,
}

impl Place {
    /// The files of the model at `path`.
    pub(super) fn find(path: &Path) -> Result<Self, Error> {
        if !path.is_dir() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            return Ok(Self {
                root: path.parent().unwrap_or(Path::new("")).to_owned(),
                model: path.to_owned(),
                name: name.into_owned(),
            });
        }
        let manifest = Manifest::read(&path.join("Manifest.json"))?;
        let data = path.join(DATA);
        let mut root = None;
        for (identifier, item) in &manifest.item_info_entries {
            let found = resolve(&data, &item.path, "Manifest.json")?;
            if *identifier != manifest.root_model_identifier {
                // A folder for weights is empty where there are none, and git keeps no empty folder: weights
                // that are missed are told when the program names them.
                continue;
            }
            if !found.exists() {
                return Err(Error::Missing {
                    by: "Manifest.json",
                    file: item.path.clone(),
                });
            }
            root = Some((found, format!("{DATA}/{}", item.path)));
        }
        let Some((model, name)) = root else {
            return Err(Error::Manifest {
                expected: "an entry for its rootModelIdentifier",
                found: format!("none for `{}`", manifest.root_model_identifier),
            });
        };
        Ok(Self {
            root: path.to_owned(),
            model,
            name,
        })
    }

    /// The model's path from the folder.
    pub(super) fn model_name(&self) -> &str {
        &self.name
    }

    /// The model's path.
    pub(super) fn model_path(&self) -> &Path {
        &self.model
    }

    /// Opens the model.
    pub(super) fn open_model(&self) -> Result<FileSource, Error> {
        open(&self.model, &self.name)
    }

    /// Opens a weight file that the program writes so; also its path from the folder.
    pub(super) fn weights(&self, written: &str) -> Result<(String, FileSource), Error> {
        let path = self.weights_path(written)?;
        let name = match path.strip_prefix(&self.root) {
            Ok(below) => below.display().to_string(),
            Err(_) => written.to_owned(),
        };
        let file = open(&path, &name)?;
        Ok((name, file))
    }

    /// Where a weight file is that the program writes so.
    pub(super) fn weights_path(&self, written: &str) -> Result<PathBuf, Error> {
        let folder = self.model.parent().unwrap_or(Path::new(""));
        let below = location(written);
        let path = resolve(folder, below, "model")?;
        if !path.exists() {
            return Err(Error::Missing {
                by: "model",
                file: written.to_owned(),
            });
        }
        let real = |path: &Path| {
            let is_here = path.as_os_str().is_empty();
            let path = if is_here { Path::new(".") } else { path };
            path.canonicalize().ok()
        };
        let beside = real(&self.model).and_then(|model| model.parent().map(Path::to_owned));
        let is_inside = real(&path).is_some_and(|found| {
            let homes = [real(&self.root), beside];
            homes.iter().flatten().any(|home| found.starts_with(home))
        });
        if !is_inside {
            return Err(Error::Link {
                file: below.to_owned(),
            });
        }
        Ok(path)
    }
}

/// A weight file's path from the folder of its model.
pub(super) fn location(written: &str) -> &str {
    written.strip_prefix(MODEL_FOLDER).unwrap_or(written)
}

impl Manifest {
    fn read(path: &Path) -> Result<Self, Error> {
        let expected = "a JSON object";
        let wrong = |found: String| Error::Manifest { expected, found };
        let file = source::open(path).map_err(|error| wrong(error.to_string()))?;
        file.size()
            .map_err(|_| wrong("no regular file".to_owned()))?;
        let mut bytes = Vec::new();
        file.take(MAX_MANIFEST + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| wrong(error.to_string()))?;
        if bytes.len() as u64 > MAX_MANIFEST {
            return Err(wrong(format!("more than {MAX_MANIFEST} bytes")));
        }
        if let Some(pointer) = Pointer::parse(&bytes) {
            return Err(Error::Pointer {
                file: "Manifest.json".to_owned(),
                size: pointer.size,
            });
        }
        let manifest: Self =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        if manifest.item_info_entries.len() > MAX_ENTRIES {
            return Err(Error::TooMany {
                what: "entries in Manifest.json",
                most: MAX_ENTRIES,
            });
        }
        Ok(manifest)
    }
}

/// The path of what `by` names so in a folder.
fn resolve(folder: &Path, written: &str, by: &'static str) -> Result<PathBuf, Error> {
    let below = written.trim_end_matches('/');
    reference::resolve(folder, 0, below).map_err(|reason| Error::NoPath {
        by,
        file: written.to_owned(),
        reason,
    })
}

/// Opens a file of the model, unless it only stands for it.
fn open(path: &Path, name: &str) -> Result<FileSource, Error> {
    let fail = |error| Error::Io {
        file: name.to_owned(),
        error,
    };
    let source = FileSource::open(path).map_err(fail)?;
    if source.len() <= lfs::MAX_POINTER_SIZE {
        let mut bytes = vec![0; usize::try_from(source.len()).unwrap_or(0)];
        source.read_exact_at(0, &mut bytes).map_err(fail)?;
        if let Some(pointer) = Pointer::parse(&bytes) {
            return Err(Error::Pointer {
                file: name.to_owned(),
                size: pointer.size,
            });
        }
    }
    Ok(source)
}

/// Whether a source is a zip archive.
pub(super) fn is_zip(source: &dyn ReadAt) -> bool {
    let mut first = [0; 4];
    source.read_exact_at(0, &mut first).is_ok() && first == *b"PK\x03\x04"
}

/// Bytes of all files in a folder; of links to files, those of the files.
pub fn folder_size(path: &Path) -> u64 {
    let entries = WalkDir::new(path).into_iter().take(MAX_FILES);
    let sizes = entries.flatten().filter_map(|entry| {
        let metadata = if entry.path_is_symlink() {
            source::metadata(entry.path()).ok()?
        } else {
            entry.metadata().ok()?
        };
        metadata.is_file().then_some(metadata.len())
    });
    sizes.fold(0, u64::saturating_add)
}
