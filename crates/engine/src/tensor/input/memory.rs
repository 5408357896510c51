//! The memory budget of a run's inputs, checked before anything is allocated.

use super::InputError;
use crate::tensor::MAX_TENSOR_BYTES;
use crate::tensor::limit::{MemoryLimit, RunLimit, free_memory};

/// The remaining memory budget.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    bytes: u64,
    taken: u64,
    /// The limit behind `bytes`; `None` if it is all free memory.
    limit: Option<RunLimit>,
}

impl MemoryBudget {
    /// Measures the budget: the limit, but at most the memory that the machine or the process's
    /// container has free, and at most [`MAX_TENSOR_BYTES`].
    ///
    /// `held` bytes are already in use and are subtracted from a limit set by the user. Free memory
    /// already accounts for them.
    pub(super) fn measure(limit: Option<MemoryLimit>, held: u64) -> Self {
        let free = free_memory()
            .unwrap_or(MAX_TENSOR_BYTES)
            .min(MAX_TENSOR_BYTES);
        let limit = limit.and_then(MemoryLimit::now);
        let limit = limit.filter(|limit| limit.bytes().is_some_and(|bytes| bytes <= free));
        let bytes = limit.and_then(RunLimit::bytes).unwrap_or(free);
        let is_chosen = limit.is_some_and(RunLimit::is_chosen);
        Self {
            bytes,
            taken: if is_chosen { held.min(bytes) } else { 0 },
            limit,
        }
    }

    /// Returns the remaining budget, in bytes.
    pub(super) fn left(&self) -> u64 {
        self.bytes - self.taken
    }

    /// Fails if fewer than `bytes` remain.
    pub(super) fn require(&self, bytes: u64) -> Result<(), InputError> {
        if bytes > self.left() {
            return Err(InputError::Memory {
                needed: self.taken.saturating_add(bytes),
                available: self.bytes,
                limit: self.limit,
            });
        }
        Ok(())
    }

    /// Takes `bytes` from the budget, or fails.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), InputError> {
        self.require(bytes)?;
        self.taken += bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_counts() {
        let mut memory = MemoryBudget {
            bytes: 10,
            taken: 0,
            limit: None,
        };
        assert_eq!(memory.take(6), Ok(()));
        let error = memory.take(u64::MAX - 1).expect_err("too much");
        assert!(matches!(error, InputError::Memory { available: 10, .. }));
        assert_eq!(memory.take(4), Ok(()));
        assert!(memory.take(1).is_err());
        assert!((1..=MAX_TENSOR_BYTES).contains(&MemoryBudget::measure(None, 0).left()));
    }

    #[test]
    fn a_limit_holds_and_is_named() {
        let memory = MemoryBudget::measure(Some(MemoryLimit::Option(10 << 20)), 4 << 20);
        assert_eq!(memory.left(), 6 << 20);
        let memory = MemoryBudget::measure(Some(MemoryLimit::Option(10 << 20)), 0);
        assert_eq!(memory.left(), 10 << 20);
        let error = memory.require(11 << 20).expect_err("too much");
        assert_eq!(
            error.to_string(),
            "the inputs need 11 MiB, more than the memory limit of 10 MiB (--max-memory); give it \
             more memory, or smaller inputs (`--dim`)"
        );
    }
}
