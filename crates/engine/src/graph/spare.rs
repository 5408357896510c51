//! Reuses the memory of tensors that nothing reads any more for the next tensor of the same size.
//!
//! Allocating and clearing memory for each operator of each run took a tenth of a convolutional
//! network's time.
//!
//! Invariant: a thread keeps at most [`MAX_KEPT_BYTES`] bytes and frees them when it ends. A tensor is
//! evicted only after it was unused for long. Runs request their tensors in a cycle. If a cycle
//! exceeds the limit, the least recently used tensor is always the one needed next, so evicting it
//! would be useless.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use tract_onnx::tract_core::internal::{DatumType, Tensor, TractErrorContext as _, TractResult};

/// Maximum size of the tensors that a thread keeps, in bytes: all images of a network for phones.
const MAX_KEPT_BYTES: usize = 32 << 20;

/// Number of tensors of other sizes after which an unused one is evicted.
const EVICTION_AGE: u64 = 1000;

/// Minimum size of a tensor that is kept, in bytes. Clearing smaller ones is cheap.
const MIN_KEPT_BYTES: usize = 16 << 10;

thread_local! {
    static SPARE: RefCell<SpareTensors> = const { RefCell::new(SpareTensors::new()) };
}

/// Tensors that were computed on this thread; others still read most of them.
struct SpareTensors {
    /// Tensors with the time of their last use; the most recently used one is last.
    tensors: VecDeque<(u64, Arc<Tensor>)>,
    bytes: usize,
    /// Number of calls of `keep` so far, as a clock.
    time: u64,
}

/// Returns a tensor of this shape with undefined elements that nobody else references.
pub(crate) fn tensor(dtype: DatumType, shape: &[usize]) -> TractResult<Arc<Tensor>> {
    let elements = shape
        .iter()
        .try_fold(1, |n: usize, size| n.checked_mul(*size));
    let elements = elements.with_context(|| format!("the shape {shape:?} is too large"))?;
    let known = SPARE.with_borrow_mut(|spare| spare.take(dtype, elements));
    let Some(mut known) = known else {
        return Ok(Arc::new(Tensor::zero_dt(dtype, shape)?));
    };
    let tensor = Arc::get_mut(&mut known).context("the tensor is still in use")?;
    tensor.set_shape(shape)?;
    if cfg!(debug_assertions) {
        // Makes elements that an operator fails to write visible in every test.
        tensor.try_as_plain_ram_mut()?.as_bytes_mut().fill(0xaa);
    }
    Ok(known)
}

/// Registers a tensor. Its memory is reused when nobody else references it.
pub(crate) fn keep(tensor: &Arc<Tensor>) {
    SPARE.with_borrow_mut(|spare| spare.keep(tensor));
}

impl SpareTensors {
    const fn new() -> Self {
        Self {
            tensors: VecDeque::new(),
            bytes: 0,
            time: 0,
        }
    }

    fn take(&mut self, dtype: DatumType, elements: usize) -> Option<Arc<Tensor>> {
        let fits = |(_, tensor): &mut (u64, Arc<Tensor>)| {
            tensor.len() == elements
                && tensor.datum_type() == dtype
                && Arc::get_mut(tensor).is_some()
        };
        let at = self.tensors.iter_mut().position(fits)?;
        let (_, tensor) = self.tensors.remove(at)?;
        self.bytes -= size(&tensor);
        Some(tensor)
    }

    fn keep(&mut self, tensor: &Arc<Tensor>) {
        let size = size(tensor);
        if !(MIN_KEPT_BYTES..=MAX_KEPT_BYTES).contains(&size) {
            return;
        }
        self.time += 1;
        while self.bytes + size > MAX_KEPT_BYTES {
            let Some((used, oldest)) = self.tensors.front() else {
                break;
            };
            if self.time - used < EVICTION_AGE {
                return;
            }
            self.bytes -= self::size(oldest);
            self.tensors.pop_front();
        }
        self.bytes += size;
        self.tensors.push_back((self.time, Arc::clone(tensor)));
    }
}

fn size(tensor: &Tensor) -> usize {
    tensor.len() * tensor.datum_type().size_of()
}

#[cfg(test)]
mod tests {
    use super::{DatumType, EVICTION_AGE, MAX_KEPT_BYTES, MIN_KEPT_BYTES, SPARE, keep, tensor};

    fn address(tensor: &tract_onnx::prelude::Tensor) -> usize {
        let view = tensor.try_as_plain_ram().expect("in memory");
        view.as_bytes().as_ptr().addr()
    }

    #[test]
    fn memory_is_used_again_when_nothing_reads_it() {
        let first = tensor(DatumType::F32, &[64, 128]).expect("a tensor");
        keep(&first);
        let second = tensor(DatumType::F32, &[128, 64]).expect("a tensor");
        assert_ne!(address(&first), address(&second), "the first is read");
        let place = address(&first);
        drop(first);
        let other = tensor(DatumType::I32, &[64, 128]).expect("a tensor");
        assert_ne!(address(&other), place, "of another dtype");
        let third = tensor(DatumType::F32, &[8192]).expect("a tensor");
        assert_eq!((address(&third), third.shape()), (place, &[8192][..]));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        keep(&tensor(DatumType::U8, &[MIN_KEPT_BYTES - 1]).expect("a tensor"));
        keep(&tensor(DatumType::U8, &[MAX_KEPT_BYTES + 1]).expect("a tensor"));
        SPARE.with_borrow(|spare| assert!(spare.tensors.is_empty()));
        let lengths = || {
            SPARE.with_borrow(|spare| {
                let lengths: Vec<usize> = spare.tensors.iter().map(|(_, one)| one.len()).collect();
                assert_eq!(lengths.iter().sum::<usize>(), spare.bytes);
                assert!(spare.bytes <= MAX_KEPT_BYTES, "{}", spare.bytes);
                lengths
            })
        };
        let large = |number: usize| (1 << 20) + number;
        for number in 0..40 {
            keep(&tensor(DatumType::U8, &[large(number)]).expect("a tensor"));
        }
        let first: Vec<usize> = (0..31).map(large).collect();
        assert_eq!(
            lengths(),
            first,
            "a cycle that exceeds the limit keeps its beginning"
        );
        for _ in 0..EVICTION_AGE {
            keep(&tensor(DatumType::U8, &[large(50)]).expect("a tensor"));
        }
        assert!(
            lengths().contains(&large(50)),
            "a tensor that was unused for long is evicted"
        );
        assert!(tensor(DatumType::U8, &[usize::MAX, 2]).is_err());
    }
}
