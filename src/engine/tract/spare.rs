//! Memory of tensors that nothing reads any more, for the next one of the same size: neither taken from the system nor
//! filled with zeros for each operator of each run, which was a tenth of a convolutional network's time.
//!
//! Invariant: a thread keeps at most [`MOST_KEPT`] bytes, those used last, and gives them back when it ends.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use tract_onnx::tract_core::internal::*;

/// Bytes that a thread keeps: the larger images of a network for phones.
const MOST_KEPT: usize = 16 << 20;

/// Bytes of the smallest tensors that are kept. To fill smaller ones costs nothing.
const LEAST: usize = 16 << 10;

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare { tensors: VecDeque::new(), bytes: 0 }) };
}

/// Tensors that were computed on this thread, most of which others read still.
struct Spare {
    /// The one used last at the end.
    tensors: VecDeque<Arc<Tensor>>,
    bytes: usize,
}

/// A tensor of this shape that nobody else holds, of elements without meaning.
pub(super) fn tensor<T: Datum>(shape: &[usize]) -> TractResult<Arc<Tensor>> {
    let dtype = T::datum_type();
    let elements = shape
        .iter()
        .try_fold(1, |n: usize, size| n.checked_mul(*size));
    let elements = elements.with_context(|| format!("a tensor of the shape {shape:?}"))?;
    let known = SPARE.with_borrow_mut(|spare| spare.take(dtype, elements));
    let Some(mut known) = known else {
        return Ok(Arc::new(Tensor::zero_dt(dtype, shape)?));
    };
    let tensor = Arc::get_mut(&mut known).context("a tensor that is read")?;
    tensor.set_shape(shape)?;
    if cfg!(debug_assertions) {
        // What an operator leaves as it was shows in every test.
        tensor.try_as_plain_ram_mut()?.as_bytes_mut().fill(0xaa);
    }
    Ok(known)
}

/// Remembers a tensor, whose memory is used again when nobody else holds it.
pub(super) fn keep(tensor: &Arc<Tensor>) {
    SPARE.with_borrow_mut(|spare| spare.keep(tensor));
}

impl Spare {
    fn take(&mut self, dtype: DatumType, elements: usize) -> Option<Arc<Tensor>> {
        let fits = |tensor: &mut Arc<Tensor>| {
            tensor.len() == elements
                && tensor.datum_type() == dtype
                && Arc::get_mut(tensor).is_some()
        };
        let at = self.tensors.iter_mut().position(fits)?;
        let tensor = self.tensors.remove(at)?;
        self.bytes -= size(&tensor);
        Some(tensor)
    }

    fn keep(&mut self, tensor: &Arc<Tensor>) {
        let size = size(tensor);
        if !(LEAST..=MOST_KEPT).contains(&size) {
            return;
        }
        self.bytes += size;
        self.tensors.push_back(Arc::clone(tensor));
        while self.bytes > MOST_KEPT
            && let Some(oldest) = self.tensors.pop_front()
        {
            self.bytes -= self::size(&oldest);
        }
    }
}

fn size(tensor: &Tensor) -> usize {
    tensor.len() * tensor.datum_type().size_of()
}

#[cfg(test)]
mod tests {
    use super::{LEAST, MOST_KEPT, SPARE, keep, tensor};
    use std::sync::Arc;

    fn address(tensor: &tract_onnx::prelude::Tensor) -> usize {
        let view = tensor.try_as_plain_ram().expect("in memory");
        view.as_bytes().as_ptr().addr()
    }

    #[test]
    fn memory_is_used_again_when_nothing_reads_it() {
        let first = tensor::<f32>(&[64, 128]).expect("a tensor");
        keep(&first);
        let second = tensor::<f32>(&[128, 64]).expect("a tensor");
        assert_ne!(address(&first), address(&second), "the first is read");
        let place = address(&first);
        drop(first);
        let other = tensor::<i32>(&[64, 128]).expect("a tensor");
        assert_ne!(address(&other), place, "of another dtype");
        let third = tensor::<f32>(&[8192]).expect("a tensor");
        assert_eq!((address(&third), third.shape()), (place, &[8192][..]));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        keep(&tensor::<u8>(&[LEAST - 1]).expect("a tensor"));
        keep(&tensor::<u8>(&[MOST_KEPT + 1]).expect("a tensor"));
        SPARE.with_borrow(|spare| assert!(spare.tensors.is_empty()));
        for size in 0..40 {
            keep(&tensor::<u8>(&[(1 << 20) + size]).expect("a tensor"));
        }
        SPARE.with_borrow(|spare| {
            let bytes: usize = spare.tensors.iter().map(|tensor| tensor.len()).sum();
            assert_eq!(bytes, spare.bytes);
            assert!(bytes <= MOST_KEPT, "{bytes}");
            let last = spare.tensors.back().expect("the last");
            assert_eq!(last.len(), (1 << 20) + 39);
            assert_eq!(Arc::strong_count(last), 1);
        });
        assert!(tensor::<u8>(&[usize::MAX, 2]).is_err());
    }
}
