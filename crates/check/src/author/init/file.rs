//! A model file in a directory: its size and its header.

use std::fs;
use std::path::Path;

use pkgtool_model::{self as model, ModelInfo, OpenError};

/// A model file.
#[derive(Debug)]
pub(super) struct InitModel {
    /// The file name in the directory.
    pub(super) name: String,
    /// Size in bytes: the total for a directory, the real file's size for a Git LFS pointer.
    pub(super) size: Option<u64>,
    /// The header, or the reason why it is unavailable, as a phrase that follows the name.
    pub(super) info: Result<ModelInfo, String>,
}

impl InitModel {
    /// Opens a file of the directory.
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

    /// Returns the header, if it was read.
    pub(super) fn model(&self) -> Option<&ModelInfo> {
        self.info.as_ref().ok()
    }

    /// Returns format and version, such as `executorch ET12`.
    pub(super) fn format(&self) -> String {
        self.model().map_or(String::new(), |info| {
            format!("{} {}", info.format, info.format_version)
        })
    }
}
