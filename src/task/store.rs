//! The seam between the protocol of tasks and what keeps them.

use std::sync::Arc;

use tokio::sync::{broadcast, watch};

use super::limits::{Limit, Limits};
use super::record::{
    Claimed, Deletion, Failure, Lease, NamedBlob, NewTask, Removed, Statistics, Status, Task,
};
use super::{Answered, TaskId, Turns};
use crate::account::AccountId;
use crate::database::{DatabaseError, Timestamp};

/// Why a request is not accepted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EnqueueError {
    /// The account has as many waiting tasks as it may have.
    #[error("the account has {limit} waiting tasks, as many as it may have")]
    TooManyWaiting {
        /// The limit.
        limit: u32,
    },
    /// The account makes more requests than it may.
    #[error("the account may make {limit} requests per second")]
    RateExceeded {
        /// The limit.
        limit: u32,
        /// After how many milliseconds one will be accepted.
        retry_after: u64,
    },
    /// The account does not exist or is blocked.
    #[error("the account is blocked")]
    Blocked,
    /// As many of the account's tasks are kept as it may have.
    #[error(
        "the account has {limit} stored tasks, as many as it may have; delete some (DELETE \
         …/async/task/ID), or wait until finished ones are deleted"
    )]
    TooManyStored {
        /// The limit.
        limit: u64,
    },
    /// What is kept of the account's tasks would take more than it may.
    #[error(
        "the account has stored {held} bytes, and this request has {size}: more than the {limit} that \
         it may have; delete tasks or datasets (DELETE …/async/task/ID), or wait until finished ones are deleted"
    )]
    TooManyBytes {
        /// What is stored.
        held: u64,
        /// What the request would add.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The account's requests took as much CPU time today as they may.
    #[error(
        "the account's requests took {limit} CPU seconds today, as many as they may \
         (`limits.cpu_seconds_per_day`); the next day begins at 0:00 UTC"
    )]
    CpuUsed {
        /// The limit, in seconds.
        limit: u64,
        /// Seconds until the next day.
        retry_after: u64,
    },
    /// The idempotency key was used for another request.
    #[error("the Idempotency-Key was used for another request")]
    Conflict,
    /// The store failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// Something that whoever waits for a task wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The task.
    pub task: TaskId,
    /// Its state now.
    pub status: Status,
}

/// Keeps tasks. Every method is one move of the protocol, atomic and durable when it returns. Time, ids,
/// limits and turns are arguments: a store reads no accounts, and tests own the clock.
#[async_trait::async_trait]
pub trait TaskStore: Send + Sync {
    /// The greatest id of a task that is stored: those of new tasks must be greater.
    async fn last_id(&self) -> Result<Option<TaskId>, DatabaseError>;

    /// Accepts a task, if its caller's limit allows it: its waiting tasks, what it has stored, then its
    /// rate, all counted in the same transaction. For a repeated idempotency key the first task's id.
    async fn enqueue(
        &self,
        task: NewTask,
        limit: Limit,
        now: Timestamp,
    ) -> Result<TaskId, EnqueueError>;

    /// Whether a task of the account would be accepted now, as far as its waiting tasks tell: a body that
    /// would be sent in vain need not be sent. One with a known idempotency key is not refused for them.
    /// Changes nothing; [`TaskStore::enqueue`] decides.
    async fn foresee(
        &self,
        account: AccountId,
        limit: Limit,
        key: Option<&str>,
    ) -> Result<(), EnqueueError>;

    /// Counts a request in the account's rate: a synchronous predict, or one that will make a task and is
    /// then not counted again ([`Limit::counted`]).
    async fn admit(
        &self,
        account: AccountId,
        limit: Limit,
        now: Timestamp,
    ) -> Result<(), EnqueueError>;

    /// Claims up to `max` waiting tasks, and more for accounts that run less than their share
    /// ([`Limits::share`]): accounts take turns (the one served longest ago first, of
    /// several the one with the least number), each account's tasks in the order they came, none beyond
    /// its running limit. Counts the attempt. The turns are as before the first of these claims.
    async fn claim(
        &self,
        max: usize,
        turns: &Arc<Turns>,
        limits: &Limits,
        lease_until: Timestamp,
    ) -> Result<Vec<Claimed>, DatabaseError>;

    /// Prolongs leases. Gives back those that are lost.
    async fn heartbeat(
        &self,
        held: &[Lease],
        lease_until: Timestamp,
    ) -> Result<Vec<Lease>, DatabaseError>;

    /// Stores the answer; `false` if the lease was lost, and then nothing changed. It expires at
    /// `expires_at` if it is one that does ([`Content::expires`](super::Content::expires)).
    async fn complete(
        &self,
        lease: Lease,
        answer: Answered,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<bool, DatabaseError>;

    /// Ends a task with an error; `false` if the lease was lost.
    async fn fail(
        &self,
        lease: Lease,
        failure: Failure,
        now: Timestamp,
    ) -> Result<bool, DatabaseError>;

    /// Puts a running task back to its place in the queue. `crashed`: its worker died, which is counted,
    /// and the `attempts`-th time (or if the service wants no retry) the task is canceled with
    /// [`Failure::crashed`]. `false` if the lease was lost.
    async fn release(
        &self,
        lease: Lease,
        crashed: bool,
        attempts: u32,
        now: Timestamp,
    ) -> Result<bool, DatabaseError>;

    /// Cancels a task for its user; a final state stays as it is. `None` if there is no such task.
    async fn cancel(&self, task: TaskId, now: Timestamp) -> Result<Option<Task>, DatabaseError>;

    /// Reads a task.
    async fn get(&self, task: TaskId) -> Result<Option<Task>, DatabaseError>;

    /// How many of its account's waiting tasks come before a task, and `None` if it does not wait.
    async fn place(&self, task: TaskId) -> Result<Option<u64>, DatabaseError>;

    /// An account's tasks, the newest first: at most `max`, older than `before`, in this state.
    async fn list(
        &self,
        caller: AccountId,
        status: Option<Status>,
        before: Option<TaskId>,
        max: usize,
    ) -> Result<Vec<Task>, DatabaseError>;

    /// Treats every running task as [`TaskStore::release`] with `crashed` does: for a store that only
    /// one process uses, when that process starts. Gives how many there were.
    async fn recover(&self, attempts: u32, now: Timestamp) -> Result<u64, DatabaseError>;

    /// The same for running tasks whose lease ended.
    async fn reap(&self, attempts: u32, now: Timestamp) -> Result<u64, DatabaseError>;

    /// Marks up to `max` answers as gone whose time has come, the oldest first. The caller deletes
    /// their blobs.
    async fn sweep(&self, now: Timestamp, max: usize) -> Result<Removed, DatabaseError>;

    /// Deletes a task that has ended. The caller deletes its blob.
    async fn delete(&self, task: TaskId) -> Result<Deletion, DatabaseError>;

    /// Deletes up to `max` tasks that ended at a moment or before it, the first to end first. The
    /// caller deletes their blobs.
    async fn purge(&self, ended_by: Timestamp, max: usize) -> Result<Removed, DatabaseError>;

    /// The blobs that tasks need, one for a task, in the order of their tasks: at most `max`, of tasks
    /// after this one.
    async fn blobs(
        &self,
        after: Option<TaskId>,
        max: usize,
    ) -> Result<Vec<NamedBlob>, DatabaseError>;

    /// Bytes that an account's tasks take.
    async fn stored(&self, account: AccountId) -> Result<u64, DatabaseError>;

    /// How much is stored.
    async fn statistics(&self) -> Result<Statistics, DatabaseError>;

    /// Whether what is accepted now would be kept: a write that changes nothing is made durable. An error
    /// also if damage was met since the store was opened.
    async fn health(&self) -> Result<(), DatabaseError>;

    /// Reads all that is stored and looks for damage, beside everything else that goes on.
    async fn check(&self) -> Result<(), DatabaseError>;

    /// Waiting and running tasks of all accounts.
    async fn load(&self) -> Result<(u64, u64), DatabaseError>;

    /// Changes whenever there may be something to claim.
    fn wakeups(&self) -> watch::Receiver<u64>;

    /// Tasks that reached a final state.
    fn events(&self) -> broadcast::Receiver<Event>;
}
