//! Where elements of one array lie in another.

/// A place for each element of a shape, row major, and what it is in another array: the sum of
/// coordinates times strides.
pub(super) fn places(shape: &[usize], strides: &[usize]) -> Vec<usize> {
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
