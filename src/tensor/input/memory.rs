//! How much memory the inputs of one run may take, known before any of it is taken.

use super::InputError;
use crate::tensor::MAX_BYTES;
use crate::tensor::limit::{Limit, MemoryLimit, free};

/// What is left to take.
#[derive(Debug)]
pub(super) struct Memory {
    bytes: u64,
    taken: u64,
    /// The limit that `bytes` are, if they are one and not all that is free.
    limit: Option<Limit>,
}

impl Memory {
    /// What the limit allows, and no more than the machine, or the container around the process, can
    /// give now; at most [`MAX_BYTES`].
    ///
    /// Of a limit that was chosen `held` bytes are taken already; what is free knows that by itself.
    pub(super) fn measure(limit: Option<MemoryLimit>, held: u64) -> Self {
        let free = free().unwrap_or(MAX_BYTES).min(MAX_BYTES);
        let limit = limit.and_then(MemoryLimit::now);
        let limit = limit.filter(|limit| limit.bytes().is_some_and(|bytes| bytes <= free));
        let bytes = limit.and_then(Limit::bytes).unwrap_or(free);
        let is_chosen = limit.is_some_and(Limit::is_chosen);
        Self {
            bytes,
            taken: if is_chosen { held.min(bytes) } else { 0 },
            limit,
        }
    }

    /// What is left, in bytes.
    pub(super) fn left(&self) -> u64 {
        self.bytes - self.taken
    }

    /// Fails if there are not as many bytes.
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

    /// Takes `bytes`, or says that there are not as many.
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
        let mut memory = Memory {
            bytes: 10,
            taken: 0,
            limit: None,
        };
        assert_eq!(memory.take(6), Ok(()));
        let error = memory.take(u64::MAX - 1).expect_err("too much");
        assert!(matches!(error, InputError::Memory { available: 10, .. }));
        assert_eq!(memory.take(4), Ok(()));
        assert!(memory.take(1).is_err());
        assert!((1..=MAX_BYTES).contains(&Memory::measure(None, 0).left()));
    }

    #[test]
    fn a_limit_holds_and_is_named() {
        let memory = Memory::measure(Some(MemoryLimit::Option(10 << 20)), 4 << 20);
        assert_eq!(memory.left(), 6 << 20);
        let memory = Memory::measure(Some(MemoryLimit::Option(10 << 20)), 0);
        assert_eq!(memory.left(), 10 << 20);
        let error = memory.require(11 << 20).expect_err("too much");
        assert_eq!(
            error.to_string(),
            "the inputs need 11 MiB, more than the memory limit of 10 MiB (--max-memory); give it \
             more memory, or smaller inputs (`--dim`)"
        );
    }
}
