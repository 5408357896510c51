//! Slices of a tensor along one of its axes.
//!
//! Invariant: a range outside the tensor is an error. A contiguous slice is not copied.

use std::ops::Range;

use super::{Tensor, TensorError};

/// A slice that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// The axis does not exist, or the range exceeds it.
    #[error("{tensor} has no positions {from} to {to} along axis {axis}")]
    Outside {
        /// dtype and shape.
        tensor: String,
        /// The axis.
        axis: usize,
        /// The first position.
        from: u64,
        /// The position after the last one.
        to: u64,
    },
    /// The slice cannot be created.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl Tensor {
    /// Returns the positions of `range` along `axis`, without a copy if they are contiguous.
    #[expect(
        clippy::missing_panics_doc,
        reason = "positions within an existing tensor fit"
    )]
    pub fn part(self, axis: usize, range: Range<u64>) -> Result<Self, PartError> {
        let size = self.shape().get(axis).copied();
        if size.is_none_or(|size| range.start > range.end || range.end > size) {
            return Err(PartError::Outside {
                tensor: format!("{self:?}"),
                axis,
                from: range.start,
                to: range.end,
            });
        }
        let dtype = self.dtype();
        let mut shape = self.shape().to_vec();
        if Some(range.end - range.start) == size {
            return Ok(self);
        }
        // The product cannot overflow: the sizes of a tensor with elements were checked when it was
        // created.
        let product = |sizes: &[u64]| sizes.iter().product::<u64>();
        let outer = if self.is_empty() {
            0
        } else {
            product(&shape[..axis])
        };
        let inner = if self.is_empty() {
            0
        } else {
            product(&shape[axis + 1..]) * dtype.size()
        };
        let row = shape[axis].saturating_mul(inner);
        shape[axis] = range.end - range.start;
        let place = |index: u64| usize::try_from(index).expect("it is within the tensor's memory");
        let piece = |outer: u64| {
            place(outer * row + range.start * inner)..place(outer * row + range.end * inner)
        };
        let bytes = self.into_shared();
        let bytes = if outer == 1 {
            bytes.slice(piece(0))
        } else {
            let pieces = (0..outer).flat_map(|outer| &bytes[piece(outer)]);
            pieces.copied().collect::<Vec<u8>>().into()
        };
        Ok(Self::of_shared(dtype, shape, bytes)?)
    }

    /// Returns the last position along `axis`.
    pub fn last(self, axis: usize) -> Result<Self, PartError> {
        let size = self.shape().get(axis).copied().unwrap_or(0);
        self.part(axis, size.saturating_sub(1)..size.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn counted(shape: &[u64]) -> Tensor {
        let count = shape.iter().product::<u64>();
        let values = (0..count).map(|value| f64::from(u32::try_from(value).expect("it is small")));
        Tensor::from_f64(DType::Float32, shape.to_vec(), values).expect("it is small")
    }

    fn values(tensor: Result<Tensor, PartError>) -> Vec<f64> {
        tensor.expect("it is inside").to_f64().collect()
    }

    #[test]
    fn parts_are_along_their_axis() {
        let tensor = counted(&[2, 3, 2]);
        assert_eq!(values(tensor.clone().part(1, 0..1)), [0.0, 1.0, 6.0, 7.0]);
        assert_eq!(values(tensor.clone().last(1)), [4.0, 5.0, 10.0, 11.0]);
        assert_eq!(values(tensor.clone().last(2)).len(), 6);
        assert_eq!(
            values(tensor.clone().part(0, 1..2))[0].to_bits(),
            6_f64.to_bits()
        );
        let none = tensor.clone().part(1, 0..0).expect("it is inside");
        assert_eq!(none.shape(), [2, 0, 2]);
        assert_eq!(none.clone().part(1, 0..0), Ok(none.clone()));
        assert!(none.last(1).is_err());
        assert!(tensor.clone().part(1, 2..4).is_err());
        assert!(tensor.part(3, 0..0).is_err());
    }
}
