//! Positions of the elements of one array in another, strided array.

/// Returns, for each element of a shape in row-major order, its index in another array: the sum of
/// coordinates times strides.
pub(crate) fn places(shape: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut all = vec![0];
    for (&size, &stride) in shape.iter().zip(strides) {
        let mut next = Vec::with_capacity(all.len() * size);
        for start in all {
            next.extend((0..size).map(|at| start + at * stride));
        }
        all = next;
    }
    all
}
