//! Changes of tasks that are stored in groups.

use crate::database::Timestamp;
use crate::task::{Limit, NewTask, StoredAnswer, TaskFailure, TaskId};

/// A task to create.
#[derive(Debug, Clone)]
pub(super) struct Creation {
    pub(super) task: NewTask,
    pub(super) limit: Limit,
    pub(super) now: Timestamp,
}

/// A task that ends or returns to the queue.
#[derive(Debug, Clone)]
pub(super) struct TaskEnding {
    pub(super) task: TaskId,
    /// The node's number and the attempt that must hold the task; `None` for its user, who may always cancel it.
    pub(super) holder: Option<(i64, u32)>,
    pub(super) how: EndingKind,
    pub(super) now: Timestamp,
}

/// How a task ends.
#[derive(Debug, Clone)]
pub(super) enum EndingKind {
    Answer(StoredAnswer, Timestamp),
    Failure(TaskFailure),
    ByUser,
    /// It returns to the queue. If it crashed, it is canceled after so many crashes.
    PutBack {
        crashed: bool,
        attempts: u32,
    },
}
