//! What can be broken in a Core ML model. Every message names the file of a folder, the place in it, what was
//! expected and what was found.

use std::io;

use crate::model::{Breach, executorch};
use crate::package::reference::ReferenceError;

/// What is broken in a Core ML model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A message of the model is broken.
    #[error("{0}")]
    Message(#[from] executorch::Error),
    /// A message in a file of a folder is broken.
    #[error("`{file}`: {error}")]
    Within {
        /// The file, from the folder.
        file: String,
        /// What is broken in it.
        error: executorch::Error,
    },
    /// A `.mlpackage` that is an archive.
    #[error("a zip archive; a `.mlpackage` is a folder: unpack the archive")]
    Zipped,
    /// A `.mlpackage` that is a file.
    #[error("a file; a `.mlpackage` is a folder with a Manifest.json")]
    NoFolder,
    /// No model at all.
    #[error("{expected} was expected in a model, none was found in {size} bytes")]
    Empty {
        /// What is not there.
        expected: &'static str,
        /// Bytes there are.
        size: u64,
    },
    /// The manifest is not what it should be.
    #[error("`Manifest.json`: expected {expected}, found {found}")]
    Manifest {
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The manifest or the program names a file that is not there.
    #[error("`{by}` names `{file}`, which does not exist")]
    Missing {
        /// What names it.
        by: &'static str,
        /// The file, as it is written.
        file: String,
    },
    /// The manifest or the program names a file by what is no path within the folder.
    #[error("`{by}` names `{file}`, which {reason}")]
    NoPath {
        /// What names it.
        by: &'static str,
        /// The file, as it is written.
        file: String,
        /// What it is.
        reason: ReferenceError,
    },
    /// A file of weights is a link out of the folder.
    #[error("`{file}` is a link out of the package; put the file itself there")]
    Link {
        /// The file, from the folder.
        file: String,
    },
    /// A file is a Git LFS pointer.
    #[error("`{file}` is a Git LFS pointer to {size} bytes; run `git lfs pull`")]
    Pointer {
        /// The file, from the folder.
        file: String,
        /// Size of what it stands for.
        size: u64,
    },
    /// A file cannot be read.
    #[error("`{file}` cannot be read: {error}")]
    Io {
        /// The file, from the folder.
        file: String,
        /// Why not.
        error: io::Error,
    },
    /// A record of weights is not what the program takes it for.
    #[error("weight record at offset {offset}: expected {expected}, found {found}")]
    Record {
        /// Where it begins.
        offset: u64,
        /// What the program says.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The same, in a file of a folder.
    #[error("`{file}`: {error}")]
    RecordWithin {
        /// The file, from the folder.
        file: String,
        /// What is wrong.
        error: Box<Error>,
    },
    /// A list that is longer than any real one.
    #[error("expected at most {most} {what}, found more")]
    TooMany {
        /// What there is so much of.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// Only ML Programs are graphs that can be read whole.
    #[error(
        "a Core ML model of kind {kind} ({parts}), no ML Program; Core ML runs it, on Apple's systems"
    )]
    NoProgram {
        /// What it is.
        kind: String,
        /// What it is made of.
        parts: String,
    },
    /// A function that is not there.
    #[error("no function `{name}` in the program; it has {has}")]
    NoFunction {
        /// The one that was asked for.
        name: String,
        /// Those it has.
        has: String,
    },
    /// Weights in several files.
    #[error(
        "a program with weights in several files: {files}; Core ML runs it, on Apple's systems"
    )]
    SeveralFiles {
        /// Their names.
        files: String,
    },
}

impl Error {
    /// The same, in a file of a folder.
    pub(super) fn within(self, file: &str) -> Self {
        let file = file.to_owned();
        match self {
            Self::Message(error) => Self::Within { file, error },
            error @ Self::Record { .. } => Self::RecordWithin {
                file,
                error: Box::new(error),
            },
            other => other,
        }
    }
}

impl Breach for Error {
    fn offset(&self) -> Option<u64> {
        match self {
            Self::Message(error) | Self::Within { error, .. } => error.offset(),
            Self::Record { offset, .. } => Some(*offset),
            Self::RecordWithin { error, .. } => error.offset(),
            _ => None,
        }
    }
}
