//! Locates the files of a Core ML model: through the manifest of a `.mlpackage`, or the `.mlmodel`
//! itself.
//!
//! Invariant: every opened path stays inside the package textually. Weight files must also stay
//! inside after symbolic links are resolved. A link of the model file itself is followed: download
//! caches consist of such links, and weights may lie beside its target.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use walkdir::WalkDir;

use crate::FormatError;
use pkgtool_base::package::reference;
use pkgtool_base::source::lfs::{self, Pointer};
use pkgtool_base::source::{self, FileSource, ReadAt};

/// Maximum size of a manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// Maximum number of manifest entries.
const MAX_MANIFEST_ENTRIES: usize = 1 << 10;
/// The folder that manifest entries are relative to.
const DATA_FOLDER: &str = "Data";
/// Prefix of weight file paths in a program.
const MODEL_PATH_PREFIX: &str = "@model_path/";
/// Maximum number of files counted in a folder.
const MAX_FILES: usize = 100_000;

/// The files of a model.
#[derive(Debug)]
pub(super) struct ModelFiles {
    /// The folder that displayed names are relative to.
    root: PathBuf,
    model: PathBuf,
    name: String,
}

/// The parsed `Manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    item_info_entries: BTreeMap<String, ManifestItem>,
    root_model_identifier: String,
}

#[derive(Debug, Deserialize)]
struct ManifestItem {
    path: String,
}

impl ModelFiles {
    /// Finds the files of the model at `path`.
    pub(super) fn find(path: &Path) -> Result<Self, FormatError> {
        if !path.is_dir() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            return Ok(Self {
                root: path.parent().unwrap_or(Path::new("")).to_owned(),
                model: path.to_owned(),
                name: name.into_owned(),
            });
        }
        let manifest = Manifest::read(&path.join("Manifest.json"))?;
        let data = path.join(DATA_FOLDER);
        let mut root = None;
        for (identifier, item) in &manifest.item_info_entries {
            let found = resolve(&data, &item.path, "Manifest.json")?;
            if *identifier != manifest.root_model_identifier {
                // The weights folder may be empty, and Git does not track empty folders. Missing
                // weights are reported when the program references them.
                continue;
            }
            if !found.exists() {
                return Err(FormatError::new(format_args!(
                    "`Manifest.json` names `{}`, which does not exist",
                    item.path
                )));
            }
            root = Some((found, format!("{DATA_FOLDER}/{}", item.path)));
        }
        let Some((model, name)) = root else {
            return Err(FormatError::new(format_args!(
                "`Manifest.json`: expected an entry for its rootModelIdentifier, found none for `{}`",
                manifest.root_model_identifier
            )));
        };
        Ok(Self {
            root: path.to_owned(),
            model,
            name,
        })
    }

    /// Returns the model's path relative to the package.
    pub(super) fn model_name(&self) -> &str {
        &self.name
    }

    /// Returns the model's path.
    pub(super) fn model_path(&self) -> &Path {
        &self.model
    }

    /// Opens the model file.
    pub(super) fn open_model(&self) -> Result<FileSource, FormatError> {
        open(&self.model, &self.name)
    }

    /// Opens a weight file by the path that the program writes; also returns its path relative to
    /// the package.
    pub(super) fn weights(&self, written: &str) -> Result<(String, FileSource), FormatError> {
        let path = self.weights_path(written)?;
        let name = match path.strip_prefix(&self.root) {
            Ok(below) => below.display().to_string(),
            Err(_) => written.to_owned(),
        };
        let file = open(&path, &name)?;
        Ok((name, file))
    }

    /// Resolves the path of a weight file as the program writes it.
    pub(super) fn weights_path(&self, written: &str) -> Result<PathBuf, FormatError> {
        let folder = self.model.parent().unwrap_or(Path::new(""));
        let below = relative_weight_path(written);
        let path = resolve(folder, below, "model")?;
        if !path.exists() {
            return Err(FormatError::new(format_args!(
                "`model` names `{written}`, which does not exist"
            )));
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
            return Err(FormatError::new(format_args!(
                "`{below}` is a link out of the package; put the file itself there"
            )));
        }
        Ok(path)
    }
}

/// Returns a weight file's path relative to the model's folder.
pub(super) fn relative_weight_path(written: &str) -> &str {
    written.strip_prefix(MODEL_PATH_PREFIX).unwrap_or(written)
}

impl Manifest {
    fn read(path: &Path) -> Result<Self, FormatError> {
        let expected = "a JSON object";
        let wrong = |found: String| {
            FormatError::new(format_args!(
                "`Manifest.json`: expected {expected}, found {found}"
            ))
        };
        let file = source::open(path).map_err(|error| wrong(error.to_string()))?;
        file.size()
            .map_err(|_| wrong("not a regular file".to_owned()))?;
        let mut bytes = Vec::new();
        file.take(MAX_MANIFEST_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| wrong(error.to_string()))?;
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(wrong(format!("more than {MAX_MANIFEST_BYTES} bytes")));
        }
        if let Some(pointer) = Pointer::parse(&bytes) {
            return Err(FormatError::new(format_args!(
                "`Manifest.json` is a Git LFS pointer to {} bytes; run `git lfs pull`",
                pointer.size
            )));
        }
        let manifest: Self =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        if manifest.item_info_entries.len() > MAX_MANIFEST_ENTRIES {
            return Err(FormatError::too_many(
                MAX_MANIFEST_ENTRIES,
                "entries in Manifest.json",
            ));
        }
        Ok(manifest)
    }
}

/// Resolves a path in `folder` that the file `by` references.
fn resolve(folder: &Path, written: &str, by: &'static str) -> Result<PathBuf, FormatError> {
    let below = written.trim_end_matches('/');
    reference::resolve(folder, 0, below).map_err(|reason| {
        FormatError::new(format_args!("`{by}` names `{written}`, which {reason}"))
    })
}

/// Opens a file of the model, and rejects Git LFS pointers.
fn open(path: &Path, name: &str) -> Result<FileSource, FormatError> {
    let fail = |error| FormatError::new(format_args!("`{name}` cannot be read: {error}"));
    let source = FileSource::open(path).map_err(fail)?;
    if source.len() <= lfs::MAX_POINTER_SIZE {
        let mut bytes = vec![0; usize::try_from(source.len()).unwrap_or(0)];
        source.read_exact_at(0, &mut bytes).map_err(fail)?;
        if let Some(pointer) = Pointer::parse(&bytes) {
            return Err(FormatError::new(format_args!(
                "`{name}` is a Git LFS pointer to {} bytes; run `git lfs pull`",
                pointer.size
            )));
        }
    }
    Ok(source)
}

/// Returns whether a source is a zip archive.
pub(super) fn is_zip(source: &dyn ReadAt) -> bool {
    let mut first = [0; 4];
    source.read_exact_at(0, &mut first).is_ok() && first == *b"PK\x03\x04"
}

/// Returns the total size of all files in a folder, in bytes; links count with the size of their
/// target.
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
