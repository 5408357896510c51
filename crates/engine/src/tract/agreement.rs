//! Compares the answers of two plans of one model. They agree if they differ only by rounding, as
//! from another order of operations.

use crate::tensor::Tensor;

/// Maximum difference of floats, relative to the largest magnitude in the tensor.
const RELATIVE_TOLERANCE: f64 = 1e-3;

/// Returns `true` if shapes and dtypes are the same, integers equal and floats close.
pub(super) fn agree(left: &[Tensor], right: &[Tensor]) -> bool {
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .all(|(left, right)| same(left, right))
}

fn same(left: &Tensor, right: &Tensor) -> bool {
    if left.dtype() != right.dtype() || left.shape() != right.shape() {
        return false;
    }
    if !left.dtype().is_float() {
        return left.bytes() == right.bytes();
    }
    let finite = right.to_f64().filter(|value| value.is_finite());
    let magnitude = finite.fold(0.0, |largest: f64, value| largest.max(value.abs()));
    left.to_f64().zip(right.to_f64()).all(|(left, right)| {
        let difference = (left - right).abs();
        difference <= RELATIVE_TOLERANCE * magnitude || left.total_cmp(&right).is_eq()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn rounding_is_agreement_and_nothing_else() {
        let floats = |values: [f64; 2]| {
            vec![Tensor::from_f64(DType::Float32, vec![2], values).expect("it is small")]
        };
        assert!(agree(&floats([1.0, 100.0]), &floats([1.01, 100.0])));
        assert!(agree(&floats([f64::NAN, 1.0]), &floats([f64::NAN, 1.0])));
        assert!(!agree(&floats([1.0, 100.0]), &floats([1.0, 99.0])));
        assert!(!agree(&floats([1.0, 2.0]), &[]));
    }
}
