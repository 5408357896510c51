//! Keys that queries see.

use std::ops::Range;

/// Keys that the queries of a head see: a window that moves by one key with each query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisibleKeys {
    /// First key that the first query sees. Negative numbers are before the first key.
    pub first: i64,
    /// End of the keys that the first query sees.
    pub end: i64,
    /// Number of keys that any query sees.
    pub most: usize,
}

impl VisibleKeys {
    /// All keys.
    pub const ALL: Self = Self {
        first: i64::MIN,
        end: i64::MAX,
        most: usize::MAX,
    };

    /// Returns the keys of a block that a query sees, counted from the start of the block.
    #[must_use]
    pub fn in_block(self, query: usize, first: usize, count: usize) -> Range<usize> {
        let moved = |key: i64| {
            let moved = key.saturating_add(i64::try_from(query).unwrap_or(i64::MAX));
            usize::try_from(moved).unwrap_or(0)
        };
        let end = moved(self.end)
            .min(self.most)
            .saturating_sub(first)
            .min(count);
        moved(self.first).saturating_sub(first).min(end)..end
    }
}
