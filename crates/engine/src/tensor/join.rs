//! Concatenates tensors along one of their axes.
//!
//! Invariant: all tensors have the same dtype, and the same shape except for that axis.

use super::{Tensor, TensorError};

/// Tensors that cannot be concatenated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Their dtypes or other sizes differ, or the list is empty.
    #[error("cannot concatenate {tensors} along axis {axis}")]
    Incompatible {
        /// dtypes and shapes.
        tensors: String,
        /// The axis.
        axis: usize,
    },
    /// The result cannot be created.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl Tensor {
    /// Concatenates tensors along `axis`, in order.
    pub fn joined(tensors: &[Self], axis: usize) -> Result<Self, JoinError> {
        let unlike = || JoinError::Incompatible {
            tensors: format!("{tensors:?}"),
            axis,
        };
        let first = tensors.first().ok_or_else(unlike)?;
        let around = |tensor: &Self| {
            let mut shape = tensor.shape().to_vec();
            *shape.get_mut(axis)? = 0;
            Some((tensor.dtype(), shape))
        };
        let of_first = around(first);
        if of_first.is_none() || tensors.iter().any(|other| around(other) != of_first) {
            return Err(unlike());
        }
        let mut shape = first.shape().to_vec();
        let sizes = tensors.iter().map(|tensor| tensor.shape()[axis]);
        shape[axis] = sizes.fold(0, u64::saturating_add);
        let size = super::byte_size(first.dtype(), &shape)?;
        let outer = usize::try_from(shape[..axis].iter().product::<u64>()).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        let size = usize::try_from(size).map_err(|_| unlike())?;
        bytes.try_reserve_exact(size).map_err(|_| unlike())?;
        // Without elements there is nothing to copy, whatever the number of rows.
        let rows = if size == 0 { 0 } else { outer };
        for row in 0..rows {
            for tensor in tensors {
                let length = tensor.bytes().len() / outer;
                bytes.extend_from_slice(&tensor.bytes()[row * length..(row + 1) * length]);
            }
        }
        Ok(Self::new(first.dtype(), shape, bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn counted(shape: &[u64], from: u32) -> Tensor {
        let count = u32::try_from(shape.iter().product::<u64>()).expect("it is small");
        let values = (from..from + count).map(f64::from);
        Tensor::from_f64(DType::Float32, shape.to_vec(), values).expect("it is small")
    }

    #[test]
    fn parts_give_the_whole_again() {
        for axis in 0..3 {
            let whole = counted(&[2, 3, 2], 0);
            let size = whole.shape()[axis];
            for cut in 0..=size {
                let part = |range| whole.clone().part(axis, range).expect("it is inside");
                let parts = [part(0..cut), part(cut..size)];
                assert_eq!(Tensor::joined(&parts, axis).as_ref(), Ok(&whole));
            }
        }
    }

    #[test]
    fn what_is_unlike_is_not_joined() {
        let (one, other) = (counted(&[2, 3], 0), counted(&[2, 2], 0));
        assert!(Tensor::joined(&[one.clone(), other.clone()], 0).is_err());
        assert!(Tensor::joined(&[one.clone(), other], 2).is_err());
        assert!(Tensor::joined(&[], 0).is_err());
        let bytes = Tensor::zeros(DType::Uint8, vec![2, 3]).expect("it is small");
        assert!(Tensor::joined(&[one, bytes], 1).is_err());
    }
}
