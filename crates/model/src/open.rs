//! Opens a model file by its path and reads its header, with specific errors for common accidents.

use std::io;
use std::path::Path;

use super::{FORMATS, ModelError, ModelInfo, folder_size, inspect, inspect_at};
use pkgtool_base::source::lfs::{self, Pointer};
use pkgtool_base::source::{FileSource, ReadAt};

/// Why a file cannot be read as a model. The messages continue a sentence that begins with the
/// file's name.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be opened or read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The file is a Git LFS pointer.
    #[error("is a Git LFS pointer to {} bytes, not the model itself; run `git lfs pull`", .0.size)]
    LfsPointer(Pointer),
    /// The file is empty.
    #[error("is empty (0 bytes)")]
    Empty,
    /// The file claims a format and violates its rules.
    #[error("is broken: {0}")]
    Broken(ModelError),
    /// The folder is a model compiled by Core ML's compiler.
    #[error("is a compiled Core ML model, which only Core ML itself can read, on Apple's systems")]
    Compiled,
    /// No supported format claims the file.
    #[error("has an unsupported file format; supported: {}", supported_formats())]
    UnknownFormat,
}

/// Reads the header of the model at `path`. Also returns the size in bytes of the file, or of all
/// files in the folder.
pub fn open(path: &Path) -> Result<(ModelInfo, u64), OpenError> {
    if path.is_dir() {
        return open_folder(path);
    }
    let source = FileSource::open(path)?;
    if let Some(pointer) = lfs_pointer(&source) {
        return Err(OpenError::LfsPointer(pointer));
    }
    if source.is_empty() {
        return Err(OpenError::Empty);
    }
    let info = inspect(path, &source).map_err(OpenError::Broken)?;
    info.map(|info| (info, source.len()))
        .ok_or(OpenError::UnknownFormat)
}

fn open_folder(path: &Path) -> Result<(ModelInfo, u64), OpenError> {
    let info = inspect_at(path).map_err(OpenError::Broken)?;
    let is_compiled = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("mlmodelc"));
    match info {
        Some(info) => Ok((info, folder_size(path))),
        None if is_compiled => Err(OpenError::Compiled),
        None => Err(OpenError::Unreadable(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))),
    }
}

fn lfs_pointer(source: &FileSource) -> Option<Pointer> {
    if source.len() > lfs::MAX_POINTER_SIZE {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(source.len()).ok()?];
    source.read_exact_at(0, &mut bytes).ok()?;
    Pointer::parse(&bytes)
}

fn supported_formats() -> String {
    let known: Vec<&str> = FORMATS.iter().map(|format| format.name()).collect();
    known.join(", ")
}
