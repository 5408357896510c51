//! A model file of a directory: its size and what its header says.

use std::fs;
use std::path::Path;

use crate::model::{self, ModelInfo, OpenError};

/// A model file.
#[derive(Debug)]
pub(super) struct ModelFile {
    /// Its name in the directory.
    pub(super) name: String,
    /// Its bytes, those of all files in it for a folder; a Git LFS pointer's are the real file's.
    pub(super) size: Option<u64>,
    /// What its header says, or why it says nothing, in words that go behind the name.
    pub(super) info: Result<ModelInfo, String>,
}

impl ModelFile {
    /// Looks at a file of the directory.
    pub(super) fn open(directory: &Path, name: &str) -> Self {
        let path = directory.join(name);
        let (size, info) = match model::open(&path) {
            Ok((info, size)) => (Some(size), Ok(info)),
            Err(error) => {
                let size = match &error {
                    OpenError::LfsPointer(pointer) => Some(pointer.size),
                    _ if path.is_dir() => Some(model::folder_size(&path)),
                    _ => fs::metadata(&path).ok().map(|it| it.len()),
                };
                (size, Err(error.to_string()))
            }
        };
        Self {
            name: name.to_owned(),
            size,
            info,
        }
    }

    /// The model's description, if it was read.
    pub(super) fn model(&self) -> Option<&ModelInfo> {
        self.info.as_ref().ok()
    }

    /// Format and version: `executorch ET12`.
    pub(super) fn format(&self) -> String {
        self.model().map_or(String::new(), |info| {
            format!("{} {}", info.format, info.format_version)
        })
    }
}
