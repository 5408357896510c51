//! The registry of supported model formats, and detection of a file's format.
//!
//! A format claims a file by its first bytes or, failing that, by its extension.

use std::path::Path;

use super::{
    ModelError, ModelFormat, ModelInfo, coreml, executorch, gguf, onnx, qnn, safetensors, tflite,
};
use pkgtool_base::source::{FileSource, ReadAt};

/// Number of first bytes passed to [`ModelFormat::is_marked`].
const MAGIC_SIZE: usize = 64;

/// All supported formats, in the order in which they are tried.
pub static FORMATS: &[&dyn ModelFormat] = &[
    &executorch::ExecuTorchFormat,
    &executorch::FlatTensor,
    &tflite::TfLite,
    &gguf::Gguf,
    &qnn::Qnn,
    &safetensors::Safetensors,
    &onnx::Onnx,
    &coreml::CoreMl,
];

/// Returns the format that claims `path`, by its first bytes, else by its name; `None` if no format
/// claims it.
pub fn format_of(
    path: &Path,
    source: &dyn ReadAt,
) -> Result<Option<&'static dyn ModelFormat>, ModelError> {
    let size = usize::try_from(source.len()).map_or(MAGIC_SIZE, |len| len.min(MAGIC_SIZE));
    let mut first = vec![0; size];
    source.read_exact_at(0, &mut first)?;
    let mut formats = FORMATS.iter().copied();
    let marked = formats.find(|format| format.is_marked(&first));
    Ok(marked.or_else(|| named(path)))
}

/// Returns the format that the file name suggests.
fn named(path: &Path) -> Option<&'static dyn ModelFormat> {
    let mut formats = FORMATS.iter().copied();
    formats.find(|format| format.is_named(path))
}

/// Reads the header of the model at `path`, whose bytes are `source`; `None` if no format claims
/// it.
///
/// If the format suggested by the name fails, the formats without magic bytes are tried as well.
pub fn inspect(path: &Path, source: &dyn ReadAt) -> Result<Option<ModelInfo>, ModelError> {
    let Some(format) = format_of(path, source)? else {
        return Ok(None);
    };
    let info = format.inspect_named(path, source);
    let mut info = info.or_else(|error| other(format, source).ok_or(error))?;
    let named = named(path).map(ModelFormat::name);
    info.format_by_name = named.filter(|named| *named != info.format);
    Ok(Some(info))
}

/// Tries the formats without magic bytes, except `named`, which has failed.
fn other(named: &dyn ModelFormat, source: &dyn ReadAt) -> Option<ModelInfo> {
    let formats: [&dyn ModelFormat; 2] = [&onnx::Onnx, &coreml::CoreMl];
    let mut others = formats
        .iter()
        .filter(|format| format.name() != named.name());
    others.find_map(|format| format.inspect(source).ok())
}

/// Reads the header of the model at `path`, a file or a folder; `None` if no format claims it.
pub fn inspect_at(path: &Path) -> Result<Option<ModelInfo>, ModelError> {
    if path.is_dir() {
        let mut formats = FORMATS.iter();
        return formats
            .find_map(|format| format.inspect_folder(path))
            .transpose();
    }
    inspect(path, &FileSource::open(path)?)
}
