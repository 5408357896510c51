//! The list of model formats this tool reads, and the choice among them.

use std::path::Path;

use super::{
    ModelError, ModelFormat, ModelInfo, coreml, executorch, gguf, onnx, qnn, safetensors, tflite,
};
use crate::source::{FileSource, ReadAt};

/// How many first bytes [`ModelFormat::matches`] is shown.
const MAGIC_SIZE: usize = 64;

/// All formats; those recognised by their first bytes come before those by their names.
pub static FORMATS: &[&dyn ModelFormat] = &[
    &executorch::ExecuTorch,
    &executorch::FlatTensor,
    &tflite::TfLite,
    &gguf::Gguf,
    &qnn::Qnn,
    &safetensors::Safetensors,
    &onnx::Onnx,
    &coreml::CoreMl,
];

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
        .map(|format| format.inspect_named(path, source))
        .transpose()
}

/// Reads the header of the model at `path`, a file or a folder; `None` if no format here claims it.
pub fn inspect_at(path: &Path) -> Result<Option<ModelInfo>, ModelError> {
    if path.is_dir() {
        let mut formats = FORMATS.iter();
        return formats
            .find_map(|format| format.inspect_folder(path))
            .transpose();
    }
    inspect(path, &FileSource::open(path)?)
}
