//! The references of a config, followed.

use std::path::Path;
use std::sync::Arc;

use super::files::{FileCache, FileFacts, FileState};
use crate::model::ModelInfo;
use crate::package::reference::{self, ReferenceError};
use crate::package::{Config, FileRef, model_file};

/// A reference and what became of it.
pub(super) struct Referenced {
    /// The reference.
    pub(super) file: FileRef,
    /// Index of its variant; `None` for tokenizer files.
    pub(super) variant: Option<usize>,
    /// Whether it should be a model (and not a tokenizer or another component's data file).
    pub(super) is_model: bool,
    /// The file's facts, or why the reference can't be followed.
    pub(super) facts: Result<Arc<FileFacts>, ReferenceError>,
}

impl Referenced {
    /// What the model's header says, if it was read.
    pub(super) fn model_info(&self) -> Option<&ModelInfo> {
        let facts = self.facts.as_ref().ok()?;
        self.is_model.then(|| facts.model.as_ref()?.info())?
    }

    /// Whether it leads to a directory where a file should be.
    pub(super) fn is_wrong_directory(&self) -> bool {
        let is_bundle = self.is_model && model_file::is_bundle(&self.file.reference);
        let facts = self.facts.as_ref();
        !is_bundle && facts.is_ok_and(|facts| matches!(facts.state, FileState::Directory(_)))
    }
}

/// Those of `files`, which are in the config's order, that belong to the variant with this index.
pub(super) fn files_of(files: &[Referenced], variant: usize) -> &[Referenced] {
    let start = files.partition_point(|file| file.variant < Some(variant));
    let end = files.partition_point(|file| file.variant <= Some(variant));
    &files[start..end]
}

/// Extensions of components that are data, not models: settings, vocabularies, voices, tables.
const DATA_EXTENSIONS: [&str; 20] = [
    "json", "jsonl", "txt", "model", "vocab", "merges", "yaml", "yml", "toml", "md", "bin", "npy",
    "npz", "csv", "tsv", "wav", "spm", "tiktoken", "dict", "zip",
];

/// Looks at all files that a config in `directory`, so many levels below the package root, names.
pub(super) fn follow(
    config: &Config,
    directory: &Path,
    depth: usize,
    cache: &FileCache,
) -> Vec<Referenced> {
    let tokenizers = config.tokenizer_files.iter().map(|file| (file, None));
    let variants = config.variants.iter().enumerate();
    let models = variants.flat_map(|(i, variant)| variant.files.iter().map(move |f| (f, Some(i))));
    tokenizers
        .chain(models)
        .map(|(file, variant)| {
            let is_model = variant.is_some() && !is_data_component(file);
            let target = reference::resolve(directory, depth, &file.reference);
            Referenced {
                file: file.clone(),
                variant,
                is_model,
                facts: target.map(|path| cache.facts(path, is_model)),
            }
        })
        .collect()
}

fn is_data_component(file: &FileRef) -> bool {
    if file.component.is_none() || model_file::has_extension(&file.reference) {
        return false;
    }
    // What several backends share was made for none of them: no model, unless its name says so.
    is_data(&file.reference) || leaves_directory(&file.reference)
}

/// Whether a reference leads to data, as far as its extension says.
pub(super) fn is_data(reference: &str) -> bool {
    let extension = Path::new(reference).extension();
    let lower = extension.map(std::ffi::OsStr::to_ascii_lowercase);
    let lower = lower.as_deref().and_then(|extension| extension.to_str());
    lower.is_some_and(|extension| DATA_EXTENSIONS.contains(&extension))
}

/// Whether a reference leads out of the config's own directory.
pub(super) fn leaves_directory(reference: &str) -> bool {
    reference.contains("..") && reference::normalize(Path::new(reference)).starts_with("..")
}
