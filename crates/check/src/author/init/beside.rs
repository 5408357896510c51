//! Finds files that belong to the models: tokenizers, pipeline data, and configs for other
//! backends.
//!
//! Invariant: only names are inspected, except for configs, which are read within limits.

use std::path::{Path, PathBuf};

use pkgtool_base::package::reference::normalize;
use pkgtool_base::package::{Backend, Config, LoadedFile, Roots, config};
use pkgtool_base::source::{self, lfs};

/// Names of tokenizer files, in order of preference.
const TOKENIZERS: [&str; 4] = [
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer.bin",
    "spiece.model",
];
/// The name of a tokenizer's configuration.
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// Folders of pipeline components that are not models, with the file in each.
const PART_FOLDERS: [(&str, &str); 2] = [
    ("scheduler", "scheduler_config.json"),
    ("tokenizer", "tokenizer.json"),
];
/// Names of pipeline data.
const DATA_NAMES: [&str; 12] = [
    "alphabet",
    "charset",
    "characters",
    "symbols",
    "vocab",
    "vocabulary",
    "phonemes",
    "lexicon",
    "dictionary",
    "voices",
    "voice",
    "labels",
];
/// Extensions of pipeline data.
const DATA_EXTENSIONS: [&str; 5] = ["json", "txt", "bin", "npy", "npz"];

/// Evidence for a file that was found by its conventional name.
const BY_NAME: &str = "the file of that name";

/// A file that the config references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NeighbourFile {
    /// The reference relative to the config's directory, with `/`.
    pub(super) reference: String,
    /// The path of the file.
    pub(super) path: PathBuf,
    /// The evidence for the reference.
    pub(super) evidence: &'static str,
}

/// The directories that may contain a config's files, nearest first, each with its prefix in
/// references.
#[derive(Debug)]
pub(super) struct NearbyPlaces<'a>(Vec<(String, &'a Path)>);

/// Another config of the same model.
#[derive(Debug, Clone)]
pub(super) struct Sibling {
    pub(super) shown: String,
    pub(super) config: Config,
}

impl<'a> NearbyPlaces<'a> {
    pub(super) fn new(places: impl Iterator<Item = &'a Path>) -> Self {
        let leads = |(level, path)| ("../".repeat(level), path);
        Self(places.enumerate().map(leads).collect())
    }

    /// Returns the tokenizer. A folder named `tokenizer` is searched if it is not a component.
    pub(super) fn tokenizer(&self, with_folder: bool) -> Option<NeighbourFile> {
        let plain = self.first(&TOKENIZERS.map(str::to_owned));
        let folder = || {
            let names = TOKENIZERS.map(|name| format!("tokenizer/{name}"));
            self.first(&names)
        };
        plain.or_else(|| with_folder.then(folder)?)
    }

    /// Returns the pipeline components that are not models, by name.
    pub(super) fn data(&self) -> Vec<(String, NeighbourFile)> {
        let folders = PART_FOLDERS.iter().filter_map(|(part, file)| {
            let found = self.first(&[format!("{part}/{file}")])?;
            Some(((*part).to_owned(), found))
        });
        let data = DATA_NAMES.iter().filter_map(|name| {
            let files = DATA_EXTENSIONS.map(|extension| format!("{name}.{extension}"));
            let found = self.first(&files)?;
            Some(((*name).to_owned(), found))
        });
        folders.chain(data).collect()
    }

    fn first(&self, names: &[String]) -> Option<NeighbourFile> {
        self.0.iter().find_map(|(leads, directory)| {
            names.iter().find_map(|name| {
                let path = normalize(&directory.join(name));
                let reference = format!("{leads}{name}");
                let evidence = BY_NAME;
                path.is_file().then_some(NeighbourFile {
                    reference,
                    path,
                    evidence,
                })
            })
        })
    }
}

impl NeighbourFile {
    /// Returns the tokenizer's configuration in the tokenizer's directory.
    pub(super) fn tokenizer_config(&self) -> Option<Self> {
        let (folder, _) = self.reference.rsplit_once('/').unwrap_or_default();
        let reference = match folder {
            "" => TOKENIZER_CONFIG.to_owned(),
            folder => format!("{folder}/{TOKENIZER_CONFIG}"),
        };
        let path = self.path.with_file_name(TOKENIZER_CONFIG);
        path.is_file().then_some(Self {
            reference,
            path,
            evidence: BY_NAME,
        })
    }

    /// Returns the size in bytes; for a Git LFS pointer, the size of the file that it replaces.
    pub(super) fn size(&self) -> Option<u64> {
        let size = source::metadata(&self.path).ok()?.len();
        if size > lfs::MAX_POINTER_SIZE {
            return Some(size);
        }
        let bytes = source::read(&self.path, lfs::MAX_POINTER_SIZE).ok()?;
        Some(lfs::Pointer::parse(&bytes).map_or(size, |pointer| pointer.size))
    }
}

/// Returns the configs of this model for other backends, in sibling directories.
pub(super) fn siblings(directory: &Path, model: &str, roots: &Roots) -> Vec<Sibling> {
    let Some(above) = directory.parent() else {
        return Vec::new();
    };
    let others = Backend::ALL
        .iter()
        .map(|backend| above.join(backend.name()));
    let others = others.filter(|other| other != directory);
    let read = |other: PathBuf| {
        let path = other.join(config::FILE_NAME);
        let sibling = Sibling::read(&LoadedFile::read(&path), roots.shown(&path))?;
        (sibling.config.model.as_deref() == Some(model)).then_some(sibling)
    };
    others.filter_map(read).collect()
}

impl Sibling {
    /// Returns the config in a file, if it is one.
    pub(super) fn read(loaded: &LoadedFile, shown: String) -> Option<Self> {
        let document = loaded.document.as_ref().ok()?;
        let config = Config::from_document(document);
        Some(Self { shown, config })
    }
}
