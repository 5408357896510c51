//! Cache of recently read finished tasks. Clients poll the state of a task and then request its
//! result.
//!
//! Invariant: a task that this process removed is not cached, and no entry is older than [`MAX_AGE`],
//! because another process may remove tasks too.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::task::{Task, TaskId, TaskOutcome};

/// Maximum number of cached tasks, and maximum bytes of their outcomes.
const MAX_CACHED_TASKS: usize = 4096;
const MAX_CACHED_BYTES: u64 = 4 << 20;

/// Outcomes larger than this are not cached, in bytes.
const MAX_OUTCOME_BYTES: u64 = 16 << 10;

/// Maximum age of the cache.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The cache of finished tasks.
#[derive(Debug)]
pub(super) struct FinishedCache {
    known: Mutex<CacheState>,
}

#[derive(Debug)]
struct CacheState {
    tasks: HashMap<TaskId, Task>,
    bytes: u64,
    since: Instant,
    /// Incremented by every removal. A task that was read before a removal is not cached after it.
    removals: u64,
}

impl FinishedCache {
    pub(super) fn new() -> Self {
        Self {
            known: Mutex::new(CacheState {
                tasks: HashMap::new(),
                bytes: 0,
                since: Instant::now(),
                removals: 0,
            }),
        }
    }

    /// Returns the cached task, or the removal count to pass to [`Self::remember`] after reading
    /// it.
    pub(super) fn find(&self, task: TaskId) -> Result<Task, u64> {
        let mut known = self.known();
        if known.since.elapsed() >= MAX_AGE {
            known.clear();
        }
        known.tasks.get(&task).cloned().ok_or(known.removals)
    }

    /// Caches a task, unless something was removed since the lookup.
    pub(super) fn remember(&self, task: &Task, removals: u64) {
        let bytes = task.outcome.as_ref().map_or(0, TaskOutcome::bytes);
        if !task.status.is_final() || bytes > MAX_OUTCOME_BYTES {
            return;
        }
        let mut known = self.known();
        if known.removals != removals {
            return;
        }
        if known.tasks.len() >= MAX_CACHED_TASKS || known.bytes + bytes > MAX_CACHED_BYTES {
            known.clear();
        }
        known.bytes += bytes;
        known.tasks.insert(task.id, task.clone());
    }

    /// Drops a task that was removed.
    pub(super) fn forget(&self, task: TaskId) {
        let mut known = self.known();
        known.removals += 1;
        known.tasks.remove(&task);
    }

    /// Drops all tasks, after several were removed.
    pub(super) fn forget_all(&self) {
        let mut known = self.known();
        known.removals += 1;
        known.clear();
    }

    fn known(&self) -> MutexGuard<'_, CacheState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn clear(&mut self) {
        self.tasks.clear();
        self.bytes = 0;
        self.since = Instant::now();
    }
}
