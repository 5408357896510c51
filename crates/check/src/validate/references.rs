//! Resolves the file references of a config and collects the facts about the files.

use std::path::Path;
use std::sync::Arc;

use super::files::{FileCache, FileFacts, FileState};
use pkgtool_base::package::reference::{self, ReferenceError};
use pkgtool_base::package::{Config, FileRef, model_file};
use pkgtool_model::ModelInfo;

/// A file reference and its resolution.
pub(super) struct ReferencedFile {
    /// The reference.
    pub(super) file: FileRef,
    /// Index of its variant; `None` for tokenizer files.
    pub(super) variant: Option<usize>,
    /// True for a model; false for a tokenizer or a component's data file.
    pub(super) is_model: bool,
    /// The facts about the file, or why the reference cannot be resolved.
    pub(super) facts: Result<Arc<FileFacts>, ReferenceError>,
}

impl ReferencedFile {
    /// Returns the model's header, if it was read.
    pub(super) fn model_info(&self) -> Option<&ModelInfo> {
        let facts = self.facts.as_ref().ok()?;
        self.is_model.then(|| facts.model.as_ref()?.info())?
    }

    /// Returns whether the reference leads to a directory although a file is expected.
    pub(super) fn is_wrong_directory(&self) -> bool {
        let is_bundle = self.is_model && model_file::is_bundle(&self.file.reference);
        let facts = self.facts.as_ref();
        !is_bundle && facts.is_ok_and(|facts| matches!(facts.state, FileState::Directory(_)))
    }
}

/// Returns the part of `files` that belongs to the variant with this index. `files` must be in the
/// order of the config.
pub(super) fn files_of(files: &[ReferencedFile], variant: usize) -> &[ReferencedFile] {
    let start = files.partition_point(|file| file.variant < Some(variant));
    let end = files.partition_point(|file| file.variant <= Some(variant));
    &files[start..end]
}

/// Extensions of components that are data rather than models: settings, vocabularies, voices,
/// tables.
const DATA_EXTENSIONS: [&str; 20] = [
    "json", "jsonl", "txt", "model", "vocab", "merges", "yaml", "yml", "toml", "md", "bin", "npy",
    "npz", "csv", "tsv", "wav", "spm", "tiktoken", "dict", "zip",
];

/// Inspects all files referenced by a config in `directory`, which lies `depth` levels below the
/// package root.
pub(super) fn resolve_all(
    config: &Config,
    directory: &Path,
    depth: usize,
    cache: &FileCache,
) -> Vec<ReferencedFile> {
    let tokenizers = config.tokenizer_files.iter().map(|file| (file, None));
    let variants = config.variants.iter().enumerate();
    let models = variants.flat_map(|(i, variant)| variant.files.iter().map(move |f| (f, Some(i))));
    tokenizers
        .chain(models)
        .map(|(file, variant)| {
            let is_model = variant.is_some() && !is_data_component(file);
            let target = reference::resolve(directory, depth, &file.reference);
            ReferencedFile {
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
    // A file shared by several backends was built for none of them, so it counts as data unless its
    // name says otherwise.
    is_data(&file.reference) || leaves_directory(&file.reference)
}

/// Returns whether the extension of the reference is that of a data file.
pub(super) fn is_data(reference: &str) -> bool {
    let extension = Path::new(reference).extension();
    let lower = extension.map(std::ffi::OsStr::to_ascii_lowercase);
    let lower = lower.as_deref().and_then(|extension| extension.to_str());
    lower.is_some_and(|extension| DATA_EXTENSIONS.contains(&extension))
}

/// Returns whether the reference leads out of the config's own directory.
pub(super) fn leaves_directory(reference: &str) -> bool {
    reference.contains("..") && reference::normalize(Path::new(reference)).starts_with("..")
}
