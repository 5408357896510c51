//! Nodes whose lease ended.
//!
//! Invariant: a node is believed to be gone only if its lease was over at two looks that are a quarter of a lease
//! apart. When a database comes back, every node's lease is over; each then has time to renew it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The nodes whose lease was over at the last look, and since when.
#[derive(Debug)]
pub(super) struct Suspicion {
    wait: Duration,
    since: Mutex<HashMap<i64, Instant>>,
}

impl Suspicion {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            wait: lease / 4,
            since: Mutex::default(),
        }
    }

    /// Returns those of the nodes whose lease was over for long enough, given those whose lease is over now.
    pub(super) fn confirm(&self, silent: Vec<i64>) -> Vec<i64> {
        let now = Instant::now();
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let known = std::mem::take(&mut *since);
        let mut gone = Vec::new();
        for node in silent {
            let first = known.get(&node).copied().unwrap_or(now);
            if known.contains_key(&node) && now.duration_since(first) >= self.wait {
                gone.push(node);
            }
            since.insert(node, first);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_gone_at_the_second_look() {
        let suspicion = Suspicion::new(Duration::ZERO);
        assert!(suspicion.confirm(vec![1, 2]).is_empty());
        assert_eq!(suspicion.confirm(vec![2]), [2]);
        // The first node renewed its lease meanwhile.
        assert_eq!(suspicion.confirm(vec![1, 2]), [2]);
        let patient = Suspicion::new(Duration::from_hours(1));
        assert!(patient.confirm(vec![1]).is_empty());
        assert!(patient.confirm(vec![1]).is_empty());
    }
}
