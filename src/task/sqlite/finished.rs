//! Finished tasks that were read a moment ago: who asks for a state asks again, and then for the result.
//!
//! Invariant: nothing is remembered that was removed here, and nothing for longer than [`FRESH`]: another
//! process may remove tasks, too.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::task::{Outcome, Task, TaskId};

/// Tasks that are remembered, and bytes of their outcomes.
const TASKS: usize = 4096;
const BYTES: u64 = 4 << 20;

/// An outcome of more bytes is not.
const LARGE: u64 = 16 << 10;

/// For how long.
const FRESH: Duration = Duration::from_secs(1);

/// Finished tasks that are remembered.
#[derive(Debug)]
pub(super) struct Finished {
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    tasks: HashMap<TaskId, Task>,
    bytes: u64,
    since: Instant,
    /// Grows with every removal: what was read before it is not remembered after it.
    removals: u64,
}

impl Finished {
    pub(super) fn new() -> Self {
        Self {
            known: Mutex::new(Known {
                tasks: HashMap::new(),
                bytes: 0,
                since: Instant::now(),
                removals: 0,
            }),
        }
    }

    /// The task, or what [`Self::remember`] is told once it was read.
    pub(super) fn find(&self, task: TaskId) -> Result<Task, u64> {
        let mut known = self.known();
        if known.since.elapsed() >= FRESH {
            known.clear();
        }
        known.tasks.get(&task).cloned().ok_or(known.removals)
    }

    /// Remembers a task, unless something was removed since it was looked for.
    pub(super) fn remember(&self, task: &Task, removals: u64) {
        let bytes = task.outcome.as_ref().map_or(0, Outcome::bytes);
        if !task.status.is_final() || bytes > LARGE {
            return;
        }
        let mut known = self.known();
        if known.removals != removals {
            return;
        }
        if known.tasks.len() >= TASKS || known.bytes + bytes > BYTES {
            known.clear();
        }
        known.bytes += bytes;
        known.tasks.insert(task.id, task.clone());
    }

    /// Forgets a task that was removed.
    pub(super) fn forget(&self, task: TaskId) {
        let mut known = self.known();
        known.removals += 1;
        known.tasks.remove(&task);
    }

    /// Forgets all: some were removed.
    pub(super) fn forget_all(&self) {
        let mut known = self.known();
        known.removals += 1;
        known.clear();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn clear(&mut self) {
        self.tasks.clear();
        self.bytes = 0;
        self.since = Instant::now();
    }
}
