//! What a format of model files is: a name, a way to recognise it, a reader of its header.
//!
//! Knows no format; [`super::FORMATS`] lists them.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

use super::ModelInfo;
use crate::source::ReadAt;

/// A format of model files.
pub trait ModelFormat: Sync {
    /// Lower-case name, as `inspect` prints it.
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

    /// Reads the header of the file at `path`, for formats in which names say what must be in a file.
    fn inspect_named(&self, _path: &Path, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        self.inspect(source)
    }

    /// Reads the header of a model that is a folder; `None` where this format has none of that name.
    fn inspect_folder(&self, _path: &Path) -> Option<Result<ModelInfo, ModelError>> {
        None
    }
}

/// Returns whether the extension of `path` is one of these, in any case.
pub(super) fn has_extension(path: &Path, known: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| {
        known
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// A format's own error: which of its rules a file breaks, and where.
pub trait Breach: Error + Any + Send + Sync {
    /// The file offset of what is broken, where there is one.
    fn offset(&self) -> Option<u64>;
}

/// Why a model file could not be read.
#[derive(Debug)]
pub enum ModelError {
    /// The file cannot be opened or read.
    Io(io::Error),
    /// It breaks a rule of its format.
    Broken(Box<dyn Breach>),
}

impl ModelError {
    /// The file offset of what is broken, where there is one.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Io(_) => None,
            Self::Broken(breach) => breach.offset(),
        }
    }

    /// The error of a format, if it is of that one.
    pub fn breach<B: Breach>(self) -> Option<B> {
        match self {
            Self::Io(_) => None,
            Self::Broken(breach) => {
                let breach: Box<dyn Any> = breach;
                breach.downcast().ok().map(|breach| *breach)
            }
        }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Broken(breach) => breach.fmt(f),
        }
    }
}

impl Error for ModelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => error.source(),
            Self::Broken(breach) => breach.source(),
        }
    }
}

impl From<io::Error> for ModelError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl<B: Breach> From<B> for ModelError {
    fn from(breach: B) -> Self {
        Self::Broken(Box::new(breach))
    }
}
