//! Where the data that a model keeps outside its file must be, and whether it is there.

use std::fs;
use std::path::{Path, PathBuf};

use super::ExternalData;
use crate::package::reference::{self, ReferenceError};

/// Why data that a model keeps in other files cannot be used. The texts go on after the model's
/// name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExternalDataError {
    /// An ExecuTorch program with external tensors stands alone.
    #[error("keeps {tensors} tensors in a `.ptd` file, but there is none in its directory")]
    NoDataFile {
        /// How many tensors.
        tensors: u64,
    },
    /// The location leaves the model's directory.
    #[error("keeps data in `{location}`, outside its own directory")]
    Outside {
        /// As the file writes it.
        location: String,
    },
    /// The location is no relative path.
    #[error("keeps data in `{location}`, which {reason}")]
    NoPath {
        /// As the file writes it.
        location: String,
        /// What it is.
        reason: ReferenceError,
    },
    /// Nothing is there.
    #[error("keeps data in `{location}`, which does not exist")]
    Missing {
        /// As the file writes it.
        location: String,
    },
    /// The data file ends too early.
    #[error("needs {needs} bytes of `{location}`, which has {has}")]
    Short {
        /// As the file writes it.
        location: String,
        /// Bytes the model needs.
        needs: u64,
        /// Bytes there are.
        has: u64,
    },
}

impl ExternalData {
    /// Looks for the data of a model in `directory`: it lies there or below and is long enough.
    /// `None` where the format names no file, but one of its kind is there.
    pub fn locate(&self, directory: &Path) -> Result<Option<PathBuf>, ExternalDataError> {
        let Some(location) = self.location.clone() else {
            let tensors = self.tensors;
            return if has_ptd(directory) {
                Ok(None)
            } else {
                Err(ExternalDataError::NoDataFile { tensors })
            };
        };
        let path = match reference::resolve(directory, 0, &location) {
            Ok(path) => path,
            Err(ReferenceError::OutsideRoot) => {
                return Err(ExternalDataError::Outside { location });
            }
            Err(reason) => return Err(ExternalDataError::NoPath { location, reason }),
        };
        let Ok(metadata) = fs::metadata(&path) else {
            return Err(ExternalDataError::Missing { location });
        };
        let (needs, has) = (self.needs_bytes.unwrap_or(0), metadata.len());
        if has < needs {
            return Err(ExternalDataError::Short {
                location,
                needs,
                has,
            });
        }
        Ok(Some(path))
    }
}

fn has_ptd(directory: &Path) -> bool {
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .any(|path| path.extension().is_some_and(|extension| extension == "ptd"))
}
