//! Locates the external data of a model: the files beside it that hold its tensors.
//!
//! [`ExternalData::locate`] checks that each file exists inside the model's directory and is large
//! enough.

use std::path::{Path, PathBuf};

use super::executorch::body::data_files_in;
use super::{ExternalData, ModelInfo, TensorInfo};
use pkgtool_base::package::reference::{self, ReferenceError};
use pkgtool_base::source::{self, bounds};

/// Why external data of a model is unusable. The messages continue a sentence that begins with the
/// model's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExternalDataError {
    /// An ExecuTorch program has external tensors, but its directory has no `.ptd` file.
    #[error("keeps {tensors} tensors in a `.ptd` file, but its directory has no such file")]
    MissingDataFile {
        /// Number of external tensors.
        tensors: u64,
    },
    /// A data file beside the model is invalid.
    #[error("needs the data files beside it, but `{file}` is broken: {reason}")]
    BrokenDataFile {
        /// The file's name.
        file: String,
        /// The reader's error message.
        reason: String,
    },
    /// The data files lack a tensor that the model needs.
    #[error("needs a tensor `{name}`, which no `.ptd` file in its directory has")]
    MissingTensor {
        /// The tensor's name.
        name: String,
    },
    /// A data file has a different tensor under the name.
    #[error("needs `{name}` as {wanted}, but `{file}` has it as {found}")]
    TensorMismatch {
        /// The tensor's name.
        name: String,
        /// The tensor that the model needs.
        wanted: Box<TensorInfo>,
        /// The data file's name.
        file: String,
        /// The tensor in the data file.
        found: Box<TensorInfo>,
    },
    /// The location is a link out of the model's directory.
    #[error(
        "keeps data in `{location}`, which is a link out of its own directory; put the file itself there"
    )]
    LinkOutside {
        /// The location as the model file writes it.
        location: String,
    },
    /// The location leaves the model's directory.
    #[error("keeps data in `{location}`, outside its own directory")]
    OutsideDirectory {
        /// The location as the model file writes it.
        location: String,
    },
    /// The location is not a valid relative path.
    #[error("keeps data in `{location}`, which {reason}")]
    InvalidPath {
        /// The location as the model file writes it.
        location: String,
        /// Why the path is invalid.
        reason: ReferenceError,
    },
    /// The location is a directory, a pipe or a device.
    #[error("keeps data in `{location}`, which is not a regular file")]
    NotAFile {
        /// The location as the model file writes it.
        location: String,
    },
    /// The file does not exist.
    #[error("keeps data in `{location}`, which does not exist")]
    Missing {
        /// The location as the model file writes it.
        location: String,
    },
    /// The data file is too short.
    #[error("needs {needs} bytes of `{location}`, which has {has}")]
    TooShort {
        /// The location as the model file writes it.
        location: String,
        /// Number of bytes that the model needs.
        needs: u64,
        /// Size of the file in bytes.
        has: u64,
    },
}

impl ExternalData {
    /// Finds the external data in `directory` and checks that it lies inside the directory and is
    /// long enough. Returns `None` if the format names tensors instead of files and the data files
    /// there hold them all.
    pub fn locate(&self, directory: &Path) -> Result<Option<PathBuf>, ExternalDataError> {
        let Some(location) = self.location.clone() else {
            let tensors = self.tensors;
            let files = data_files_in(directory);
            if files.is_empty() {
                return Err(ExternalDataError::MissingDataFile { tensors });
            }
            return self.find_named(&files).map(|()| None);
        };
        let path = match reference::resolve(directory, 0, &location) {
            Ok(path) => path,
            Err(ReferenceError::OutsideRoot) => {
                return Err(ExternalDataError::OutsideDirectory { location });
            }
            Err(reason) => return Err(ExternalDataError::InvalidPath { location, reason }),
        };
        let metadata = match source::metadata(&path) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => return Err(ExternalDataError::NotAFile { location }),
            Err(error) if bounds::is_outside(&error) => {
                return Err(ExternalDataError::LinkOutside { location });
            }
            Err(_) => return Err(ExternalDataError::Missing { location }),
        };
        if !bounds::is_within(&path, directory).unwrap_or(false) {
            return Err(ExternalDataError::LinkOutside { location });
        }
        let (needs, has) = (self.needs_bytes.unwrap_or(0), metadata.len());
        if has < needs {
            return Err(ExternalDataError::TooShort {
                location,
                needs,
                has,
            });
        }
        Ok(Some(path))
    }

    /// Checks that the data files hold all named tensors. Reads every data file, as the runtime
    /// does.
    fn find_named(&self, files: &[PathBuf]) -> Result<(), ExternalDataError> {
        let mut held: Vec<(String, ModelInfo)> = Vec::new();
        for path in files {
            let file = path.file_name().unwrap_or_default();
            let file = file.to_string_lossy().into_owned();
            match super::open(path) {
                Ok((info, _)) => held.push((file, info)),
                Err(reason) => {
                    let reason = reason.to_string();
                    let reason = reason.strip_prefix("is broken: ").unwrap_or(&reason);
                    let reason = reason.to_owned();
                    return Err(ExternalDataError::BrokenDataFile { file, reason });
                }
            }
        }
        for wanted in &self.named {
            let name = &wanted.name;
            let mut found = held.iter().filter_map(|(file, info)| {
                let entry = info.named.iter().find(|entry| entry.name == *name)?;
                Some((file, entry))
            });
            let Some((file, entry)) = found.next() else {
                let name = name.clone();
                return Err(ExternalDataError::MissingTensor { name });
            };
            // With several candidates, the runtime decides which file it uses.
            if let (Some(wanted), Some(has), None) = (&wanted.tensor, &entry.tensor, found.next())
                && (wanted.config_shape() != has.config_shape() || wanted.element != has.element)
            {
                return Err(ExternalDataError::TensorMismatch {
                    name: name.clone(),
                    wanted: Box::new(wanted.clone()),
                    file: file.clone(),
                    found: Box::new(has.clone()),
                });
            }
        }
        Ok(())
    }
}
