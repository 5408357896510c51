//! Supplies the library with the bytes of tensors that are outside the decoded message: in the
//! model file itself or in the files of its external data.

use std::path::{Path, PathBuf};

use tract_onnx::data_resolver::ModelDataResolver;
use tract_onnx::pb::TensorProto;
use tract_onnx::prelude::{Tensor, TractError, TractResult};

use pkgtool_base::source::{FileSource, ReadAt};

/// Reads a tensor's elements, which may be outside of the model file.
pub(crate) type LoadTensor<'a> = dyn Fn(&TensorProto) -> Option<Tensor> + 'a;

/// Reads the bytes of tensors from files.
pub(crate) struct OnnxWeights {
    /// The model file, which `MODEL_FILE` refers to.
    pub(crate) model: PathBuf,
}

impl ModelDataResolver for OnnxWeights {
    /// The library has resolved `path`: it is inside the model's folder, with symlinks resolved.
    fn read_bytes_from_path(
        &self,
        buffer: &mut Vec<u8>,
        path: &Path,
        offset: usize,
        length: Option<usize>,
    ) -> TractResult<()> {
        let path = if path.is_dir() { &self.model } else { path };
        let source = FileSource::open(path)?;
        let left = source.len().checked_sub(offset as u64);
        let size = match (length, left) {
            (Some(length), Some(left)) if length as u64 <= left => length,
            (None, Some(left)) => usize::try_from(left)?,
            _ => {
                return Err(TractError::msg(format!(
                    "external data at {offset} of length {length:?} is outside {} of {} bytes",
                    path.display(),
                    source.len()
                )));
            }
        };
        buffer.try_reserve_exact(size)?;
        let start = buffer.len();
        buffer.resize(start + size, 0);
        source.read_exact_at(offset as u64, &mut buffer[start..])?;
        Ok(())
    }
}
