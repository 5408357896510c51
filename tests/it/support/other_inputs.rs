//! Different inputs to run between two runs of a test case, to detect state that a session wrongly
//! keeps.

use pkgtool_engine::tensor::{DType, Tensor};

/// Returns inputs of the same shapes with the elements in reverse order, so that indices stay in
/// range. Float elements are also halved, because reversing does not change equal elements.
pub(crate) fn disturbed(inputs: &[Tensor]) -> Vec<Tensor> {
    let disturb = |tensor: &Tensor| {
        let dtype = tensor.dtype();
        if dtype.is_float() {
            let mut values: Vec<f64> = tensor.to_f64().map(|value| value / 2.0).collect();
            values.reverse();
            return Tensor::from_f64(dtype, tensor.shape().to_vec(), values);
        }
        let size = usize::try_from(dtype.size()).expect("a few bytes");
        let elements = tensor.bytes().chunks_exact(size);
        let bytes: Vec<u8> = elements.rev().flatten().copied().collect();
        Tensor::new(dtype, tensor.shape().to_vec(), bytes)
    };
    let disturb = |tensor| disturb(tensor).expect("the tensor has the same size");
    inputs.iter().map(disturb).collect()
}

#[test]
fn disturbed_inputs_are_others_of_the_same_kind() {
    let tensor = |dtype, values: [f64; 3]| Tensor::from_f64(dtype, vec![3], values);
    let indices = tensor(DType::Int64, [0.0, 1.0, 2.0]).expect("the tensor is valid");
    let ones = tensor(DType::Float32, [1.0; 3]).expect("the tensor is valid");
    let others = disturbed(&[indices, ones]);
    assert_eq!(others[0].to_f64().collect::<Vec<_>>(), [2.0, 1.0, 0.0]);
    assert_eq!(others[1].to_f64().collect::<Vec<_>>(), [0.5; 3]);
}
