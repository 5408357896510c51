//! The [`ModelFormat`] trait: how a file format of models is recognised and its header read.
//!
//! Each format module implements the trait; [`super::FORMATS`] lists the implementations.

use std::io;
use std::path::Path;

use super::{FormatError, ModelInfo};
use pkgtool_base::source::ReadAt;

/// A file format of models.
pub trait ModelFormat: Sync {
    /// Returns the lower-case name of the format, as `inspect` prints it.
    fn name(&self) -> &'static str;

    /// Returns whether a file of this name claims to be of this format.
    fn is_named(&self, path: &Path) -> bool;

    /// Returns whether a file with these first bytes (up to 64) claims to be of this format.
    fn is_marked(&self, first_bytes: &[u8]) -> bool;

    /// Returns whether a file claims to be of this format, by its name or its first bytes. A claim is not a proof:
    /// the file may still be broken.
    fn matches(&self, path: &Path, first_bytes: &[u8]) -> bool {
        self.is_named(path) || self.is_marked(first_bytes)
    }

    /// Reads the header.
    fn inspect(&self, source: &dyn ReadAt) -> Result<ModelInfo, ModelError>;

    /// Reads the header of the file at `path`. Formats override this if the file name determines
    /// the expected content.
    fn inspect_named(&self, _path: &Path, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        self.inspect(source)
    }

    /// Reads the header of a model that is a folder; `None` if this format does not claim the
    /// folder.
    fn inspect_folder(&self, _path: &Path) -> Option<Result<ModelInfo, ModelError>> {
        None
    }
}

/// Returns whether `path` has one of these extensions, ignoring case.
pub(super) fn has_extension(path: &Path, known: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| {
        known
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// Why a model file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file cannot be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file violates a rule of its format.
    #[error(transparent)]
    Broken(#[from] FormatError),
}

impl ModelError {
    /// Returns the file offset of the violation, if it has one.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Io(_) => None,
            Self::Broken(error) => error.offset(),
        }
    }
}
