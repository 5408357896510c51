//! Tensors that follow the head of a message: the head lists them, their bytes come behind it, in order.
//!
//! Invariant: memory for a tensor is reserved fallibly, by the size that its head declares.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::tensor::{DType, Tensor, byte_size};

/// dtype and shape of an attached tensor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TensorHead {
    dtype: DType,
    shape: Vec<u64>,
}

impl TensorHead {
    /// Returns the heads of these tensors.
    pub fn of(tensors: &[Tensor]) -> Vec<Self> {
        let heads = tensors.iter().map(|tensor| Self {
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
        });
        heads.collect()
    }

    /// Returns the total size of the tensors, in bytes.
    pub fn bytes(heads: &[Self]) -> io::Result<u64> {
        let sizes = heads.iter().map(|head| {
            let size = byte_size(head.dtype, &head.shape);
            size.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        });
        sizes.sum()
    }
}

/// Receives the tensors that a head lists.
pub fn receive_tensors(
    stream: &mut (impl Read + ?Sized),
    heads: Vec<TensorHead>,
) -> io::Result<Vec<Tensor>> {
    let tensors = heads.into_iter().map(|head| {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let size = byte_size(head.dtype, &head.shape).map_err(invalid)?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        Read::take(&mut *stream, size).read_to_end(&mut bytes)?;
        Tensor::new(head.dtype, head.shape, bytes).map_err(invalid)
    });
    tensors.collect()
}
