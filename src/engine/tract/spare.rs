//! Memory of tensors that nothing reads any more, for the next one of the same size: neither taken from the system nor
//! filled with zeros for each operator of each run, which was a tenth of a convolutional network's time.
//!
//! Invariant: a thread keeps at most [`MOST_KEPT`] bytes, and gives them back when it ends. What is kept stays until it was
//! not used for long: a run asks for its tensors in a circle, and of a circle that is too large the one used longest
//! ago is always the next.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use tract_onnx::tract_core::internal::{DatumType, Tensor, TractErrorContext as _, TractResult};

/// Bytes that a thread keeps: all images of a network for phones.
const MOST_KEPT: usize = 32 << 20;

/// After how many tensors of other sizes one that was not used gives way.
const LONG: u64 = 1000;

/// Bytes of the smallest tensors that are kept. To fill smaller ones costs nothing.
const LEAST: usize = 16 << 10;

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare::new()) };
}

/// Tensors that were computed on this thread, most of which others read still.
struct Spare {
    /// With the time of its last use; the one used last at the end.
    tensors: VecDeque<(u64, Arc<Tensor>)>,
    bytes: usize,
    /// How many were to be kept so far.
    time: u64,
}

/// A tensor of this shape that nobody else holds, of elements without meaning.
pub(super) fn tensor(dtype: DatumType, shape: &[usize]) -> TractResult<Arc<Tensor>> {
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
        if !(LEAST..=MOST_KEPT).contains(&size) {
            return;
        }
        self.time += 1;
        while self.bytes + size > MOST_KEPT {
            let Some((used, oldest)) = self.tensors.front() else {
                break;
            };
            if self.time - used < LONG {
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
    use super::{DatumType, LEAST, LONG, MOST_KEPT, SPARE, keep, tensor};

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
        keep(&tensor(DatumType::U8, &[LEAST - 1]).expect("a tensor"));
        keep(&tensor(DatumType::U8, &[MOST_KEPT + 1]).expect("a tensor"));
        SPARE.with_borrow(|spare| assert!(spare.tensors.is_empty()));
        let lengths = || {
            SPARE.with_borrow(|spare| {
                let lengths: Vec<usize> = spare.tensors.iter().map(|(_, one)| one.len()).collect();
                assert_eq!(lengths.iter().sum::<usize>(), spare.bytes);
                assert!(spare.bytes <= MOST_KEPT, "{}", spare.bytes);
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
            "a circle that is too large keeps its beginning"
        );
        for _ in 0..LONG {
            keep(&tensor(DatumType::U8, &[large(50)]).expect("a tensor"));
        }
        assert!(
            lengths().contains(&large(50)),
            "what was not used for long gives way"
        );
        assert!(tensor(DatumType::U8, &[usize::MAX, 2]).is_err());
    }
}
