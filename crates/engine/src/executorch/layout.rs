//! Reorders the elements of tensors between row-major order and other memory orders.
//!
//! Image programs are often exported with the channels last in memory but not in the shape. This
//! module handles bytes only. An invalid order gives `None`.

/// Returns `true` if the memory order equals row-major order. Dimensions of size 1 may have any
/// position.
pub(super) fn is_row_major(sizes: &[i32], order: &[u8]) -> bool {
    if sizes.len() != order.len() {
        return false;
    }
    let size = |dim: u8| sizes.get(usize::from(dim)).copied();
    let counting = order.iter().filter(|dim| size(**dim) != Some(1));
    // A missing dimension compares as larger than any.
    counting.is_sorted_by(|a, b| a < b) && order.iter().all(|dim| size(*dim).is_some())
}

/// Reorders elements from row-major order to `order`.
pub(super) fn from_row_major(
    bytes: &[u8],
    width: usize,
    sizes: &[i32],
    order: &[u8],
) -> Option<Vec<u8>> {
    let mut ordered = vec![0; bytes.len()];
    let mut there = StridedWalk::new(sizes, order)?;
    for element in bytes.chunks_exact(width) {
        let at = there.next() * width;
        ordered.get_mut(at..at + width)?.copy_from_slice(element);
    }
    Some(ordered)
}

/// Reorders elements from `order` to row-major order.
pub(super) fn to_row_major(
    bytes: &[u8],
    width: usize,
    sizes: &[i32],
    order: &[u8],
) -> Option<Vec<u8>> {
    let mut row_major = vec![0; bytes.len()];
    let mut there = StridedWalk::new(sizes, order)?;
    for element in row_major.chunks_exact_mut(width) {
        let at = there.next() * width;
        element.copy_from_slice(bytes.get(at..at + width)?);
    }
    Some(row_major)
}

/// Places of elements in memory, as their indices go through all in row-major order.
struct StridedWalk {
    /// For each dimension: size, distance between neighbours in elements, and current index.
    dims: Vec<(usize, usize, usize)>,
    place: usize,
}

impl StridedWalk {
    fn new(sizes: &[i32], order: &[u8]) -> Option<Self> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        let is_order = sorted
            .iter()
            .map(|dim| usize::from(*dim))
            .eq(0..sizes.len());
        let mut dims = Vec::new();
        for size in sizes {
            dims.push((usize::try_from(*size).ok()?, 0, 0));
        }
        let mut stride = 1_usize;
        for dim in order.iter().rev().filter(|_| is_order) {
            let (size, step, _) = &mut dims[usize::from(*dim)];
            *step = stride;
            stride = stride.checked_mul(*size)?;
        }
        is_order.then_some(Self { dims, place: 0 })
    }

    /// Returns the position of the next element; after the last one it starts again.
    fn next(&mut self) -> usize {
        let place = self.place;
        for (size, step, index) in self.dims.iter_mut().rev() {
            *index += 1;
            self.place += *step;
            if *index < *size {
                break;
            }
            self.place -= *step * *index;
            *index = 0;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_move_last_and_back() {
        // Shape [1, 2, 3]: two channels of three elements.
        let bytes = [1, 2, 3, 11, 12, 13];
        let order = [0, 2, 1];
        let last = from_row_major(&bytes, 1, &[1, 2, 3], &order).expect("an order");
        assert_eq!(last, [1, 11, 2, 12, 3, 13]);
        let back = to_row_major(&last, 1, &[1, 2, 3], &order).expect("an order");
        assert_eq!(back, bytes);
        let wide = from_row_major(&bytes, 2, &[3, 1], &[1, 0]).expect("an order");
        assert_eq!(wide, bytes);
    }

    #[test]
    fn dimensions_of_one_element_stand_anywhere() {
        assert!(is_row_major(&[], &[]));
        assert!(is_row_major(&[2, 3], &[0, 1]));
        assert!(is_row_major(&[2, 1, 3], &[1, 0, 2]));
        assert!(!is_row_major(&[2, 3], &[1, 0]));
        assert!(!is_row_major(&[2, 3], &[0, 0]));
        assert!(!is_row_major(&[2, 3], &[0, 7]));
        assert!(!is_row_major(&[2, 3], &[0]));
    }
}
