//! The list of model formats this tool reads, and the choice among them.

use std::io;
use std::path::Path;

use super::{ModelInfo, executorch, onnx};
use crate::source::ReadAt;

/// How many first bytes [`ModelFormat::matches`] is shown.
const MAGIC_SIZE: usize = 64;

/// A format of model files: a name, a way to recognise it, a reader of its header.
pub trait ModelFormat: Sync {
    /// Lower-case name, as `inspect` prints it.
    fn name(&self) -> &'static str;

    /// Whether a file with this path and these first bytes (up to 64) claims to be of
    /// this format. A claim is not a proof: the file may still be broken.
    fn matches(&self, path: &Path, first_bytes: &[u8]) -> bool;

    /// Reads the header.
    fn inspect(&self, source: &dyn ReadAt) -> Result<ModelInfo, ModelError>;
}

/// All formats; those recognised by their first bytes come before those by their names.
pub static FORMATS: &[&dyn ModelFormat] = &[
    &executorch::ExecuTorch,
    &executorch::FlatTensor,
    &onnx::Onnx,
];

/// Why a model file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A broken ExecuTorch program.
    #[error(transparent)]
    ExecuTorch(#[from] executorch::Error),
    /// A broken ONNX model.
    #[error(transparent)]
    Onnx(#[from] onnx::Error),
}

impl ModelError {
    /// The file offset of what is broken, where there is one.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Io(_) => None,
            Self::ExecuTorch(error) => error.offset(),
            Self::Onnx(error) => error.offset(),
        }
    }
}

/// The format that claims `path`, by its first bytes or its name; `None` if none does.
pub fn format_of(
    path: &Path,
    source: &dyn ReadAt,
) -> Result<Option<&'static dyn ModelFormat>, ModelError> {
    let size = usize::try_from(source.len()).map_or(MAGIC_SIZE, |len| len.min(MAGIC_SIZE));
    let mut first = vec![0; size];
    source.read_exact_at(0, &mut first)?;
    Ok(FORMATS
        .iter()
        .copied()
        .find(|format| format.matches(path, &first)))
}

/// Reads the header of the model at `path`, whose bytes are `source`; `None` if no format here
/// claims it.
pub fn inspect(path: &Path, source: &dyn ReadAt) -> Result<Option<ModelInfo>, ModelError> {
    format_of(path, source)?
        .map(|format| format.inspect(source))
        .transpose()
}
