//! Errors of the Core ML reader. Every message names the file in a package, the position in it, and
//! the expected and the actual content.

use std::io;

use crate::{FormatError, executorch};
use pkgtool_base::package::reference::ReferenceError;

/// A violation of the Core ML format.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A protobuf message of the model is invalid.
    #[error("{0}")]
    Message(#[from] executorch::Error),
    /// A protobuf message in a file of a package is invalid.
    #[error("`{file}`: {error}")]
    InFile {
        /// The file, relative to the package.
        file: String,
        /// The violation.
        error: executorch::Error,
    },
    /// The `.mlpackage` is an archive instead of a folder.
    #[error("the `.mlpackage` is a zip archive: expected a folder; unpack the archive")]
    Zipped,
    /// The `.mlpackage` is a file instead of a folder.
    #[error("the `.mlpackage` is a file: expected a folder with a Manifest.json")]
    NotAFolder,
    /// The file lacks a part that every model has.
    #[error("expected {expected}, found none in {size} bytes")]
    MissingPart {
        /// The missing part.
        expected: &'static str,
        /// Size of the file in bytes.
        size: u64,
    },
    /// The manifest has unexpected content.
    #[error("`Manifest.json`: expected {expected}, found {found}")]
    Manifest {
        /// The expected content.
        expected: &'static str,
        /// The actual content.
        found: String,
    },
    /// The manifest or the program refers to a missing file.
    #[error("`{by}` names `{file}`, which does not exist")]
    Missing {
        /// The referring file.
        by: &'static str,
        /// The referenced path, as written.
        file: String,
    },
    /// The manifest or the program contains a path that is invalid within the package.
    #[error("`{by}` names `{file}`, which {reason}")]
    InvalidPath {
        /// The referring file.
        by: &'static str,
        /// The referenced path, as written.
        file: String,
        /// Why the path is invalid.
        reason: ReferenceError,
    },
    /// A weight file is a link out of the package.
    #[error("`{file}` is a link out of the package; put the file itself there")]
    Link {
        /// The file, relative to the package.
        file: String,
    },
    /// A file is a Git LFS pointer.
    #[error("`{file}` is a Git LFS pointer to {size} bytes; run `git lfs pull`")]
    Pointer {
        /// The file, relative to the package.
        file: String,
        /// Size of the original file in bytes.
        size: u64,
    },
    /// A file cannot be read.
    #[error("`{file}` cannot be read: {error}")]
    Io {
        /// The file, relative to the package.
        file: String,
        /// The cause.
        error: io::Error,
    },
    /// A weight record differs from the program's description of it.
    #[error("weight record at offset {offset}: expected {expected}, found {found}")]
    Record {
        /// Offset of the record in the weight file.
        offset: u64,
        /// The content that the program expects.
        expected: String,
        /// The actual content.
        found: String,
    },
    /// A [`Error::Record`] in a file of a package.
    #[error("`{file}`: {error}")]
    RecordInFile {
        /// The file, relative to the package.
        file: String,
        /// The violation.
        error: Box<Error>,
    },
    /// A list is longer than any real one.
    #[error("expected at most {most} {what}, found more")]
    TooMany {
        /// The items of the list.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// The model is not an ML Program; only ML Programs can be read as graphs.
    #[error(
        "a Core ML model of kind {kind} ({parts}) is not an ML Program; Core ML runs it, on Apple's systems"
    )]
    NotMlProgram {
        /// The kind of model.
        kind: String,
        /// Its layers or sub-models.
        parts: String,
    },
    /// The requested function does not exist.
    #[error("unknown function `{name}`: expected one of {has}")]
    UnknownFunction {
        /// The requested function.
        name: String,
        /// The available functions.
        has: String,
    },
    /// The weights are spread over several files.
    #[error(
        "unsupported program with weights in several files: {files}; Core ML runs it, on Apple's systems"
    )]
    SeveralFiles {
        /// Their names.
        files: String,
    },
}

impl Error {
    /// Adds the name of the file in a package to the error.
    pub(super) fn within(self, file: &str) -> Self {
        let file = file.to_owned();
        match self {
            Self::Message(error) => Self::InFile { file, error },
            error @ Self::Record { .. } => Self::RecordInFile {
                file,
                error: Box::new(error),
            },
            other => other,
        }
    }
}

impl FormatError for Error {
    fn offset(&self) -> Option<u64> {
        match self {
            Self::Message(error) | Self::InFile { error, .. } => error.offset(),
            Self::Record { offset, .. } => Some(*offset),
            Self::RecordInFile { error, .. } => error.offset(),
            _ => None,
        }
    }
}
