//! How much memory the inputs of one run may take, known before any of it is taken.

use sysinfo::System;

use super::InputError;
use crate::runtime::MAX_BYTES;

/// What is left to take.
#[derive(Debug)]
pub(super) struct Memory {
    limit: u64,
    taken: u64,
}

impl Memory {
    /// What the machine, or the container around the process, can give now; at most [`MAX_BYTES`].
    pub(super) fn measure() -> Self {
        let mut system = System::new();
        system.refresh_memory();
        // Zero where the operating system does not tell.
        let machine = Some(system.available_memory()).filter(|bytes| *bytes > 0);
        let container = system
            .cgroup_limits()
            .map(|limits| limits.total_memory.saturating_sub(limits.rss))
            .filter(|bytes| *bytes > 0);
        let limit = [machine, container].into_iter().flatten().min();
        Self {
            limit: limit.unwrap_or(MAX_BYTES).min(MAX_BYTES),
            taken: 0,
        }
    }

    /// What is left, in bytes.
    pub(super) fn left(&self) -> u64 {
        self.limit - self.taken
    }

    /// Takes `bytes`, or says that there are not as many.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), InputError> {
        if bytes > self.left() {
            return Err(InputError::Memory {
                needed: self.taken.saturating_add(bytes),
                available: self.limit,
            });
        }
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
            limit: 10,
            taken: 0,
        };
        assert_eq!(memory.take(6), Ok(()));
        let error = memory.take(u64::MAX - 1).expect_err("too much");
        assert!(matches!(error, InputError::Memory { available: 10, .. }));
        assert_eq!(memory.take(4), Ok(()));
        assert!(memory.take(1).is_err());
        assert!((1..=MAX_BYTES).contains(&Memory::measure().left()));
    }
}
