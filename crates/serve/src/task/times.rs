//! How long the operations of a task store take.

use crate::metric::Histogram;

/// Times of a store's operations.
#[derive(Debug)]
pub struct StoreTimes {
    /// From the beginning of a group of changes to its commit.
    pub commits: Histogram,
    /// Claims of tasks, each of any number.
    pub claims: Histogram,
}

impl Default for StoreTimes {
    fn default() -> Self {
        Self {
            commits: Histogram::seconds(),
            claims: Histogram::seconds(),
        }
    }
}
