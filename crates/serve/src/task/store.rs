//! The interface of task stores, independent of the database behind it.

use std::sync::Arc;

use tokio::sync::{broadcast, watch};

use super::limits::{Limit, Quota, TaskLimits};
use super::record::{
    ClaimedTask, Deletion, Lease, NamedBlob, NewTask, RemovedTasks, Statistics, Status, Task,
    TaskFailure,
};
use super::{AccountTurns, StoreTimes, StoredAnswer, TaskId};
use crate::account::AccountId;
use crate::database::{DatabaseError, DatabaseResult, Timestamp};

/// Reasons to reject a new task.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EnqueueError {
    /// The account has reached its limit of waiting tasks.
    #[error("the account has reached its limit of {limit} waiting tasks")]
    TooManyWaiting {
        /// The limit.
        limit: u32,
    },
    /// The account exceeds its request rate.
    #[error("the account's limit of {limit} requests per second is exceeded")]
    RateExceeded {
        /// The limit.
        limit: u32,
        /// Milliseconds until the next request is accepted.
        retry_after: u64,
    },
    /// The account is missing or blocked.
    #[error("the account is blocked")]
    Blocked,
    /// The account has reached its limit of stored tasks.
    #[error(
        "the account has reached its limit of {limit} stored tasks; delete some (DELETE \
         …/async/task/ID), or wait until finished ones are deleted"
    )]
    TooManyStored {
        /// The limit.
        limit: u64,
    },
    /// The account's stored data would exceed its limit.
    #[error(
        "the account's limit of {limit} stored bytes is exceeded: {held} bytes are stored, and this request has \
         {size}; delete tasks or datasets (DELETE …/async/task/ID), or wait until finished ones are deleted"
    )]
    TooManyBytes {
        /// Bytes already stored.
        held: u64,
        /// Bytes of the request.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The account's requests have used up their CPU time of today.
    #[error(
        "the account has used its daily limit of {limit} CPU seconds \
         (`limits.cpu_seconds_per_day`); the next day begins at 0:00 UTC"
    )]
    CpuUsed {
        /// The limit, in seconds.
        limit: u64,
        /// Seconds until the next day.
        retry_after: u64,
    },
    /// The idempotency key belongs to another request.
    #[error("the Idempotency-Key was already used for a different request")]
    Conflict,
    /// The store failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl EnqueueError {
    /// Checks that a request of `size` bytes fits into a quota, given the stored tasks and bytes.
    pub(super) fn check_quota(
        quota: Quota,
        (tasks, bytes): (u64, u64),
        size: u64,
    ) -> Result<(), Self> {
        let limit = quota.tasks;
        if limit > 0 && tasks >= limit {
            return Err(Self::TooManyStored { limit });
        }
        let held = bytes.saturating_add(quota.other_bytes);
        let limit = quota.bytes;
        if limit > 0 && held.saturating_add(size) > limit {
            return Err(Self::TooManyBytes { held, size, limit });
        }
        Ok(())
    }
}

/// A change of a task's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskEvent {
    /// The task.
    pub task: TaskId,
    /// Its new state.
    pub status: Status,
}

/// A store of tasks. Every method is one atomic operation that is durable when it returns. Time,
/// ids, limits and turns are arguments: a store reads no accounts, and tests control the clock.
#[async_trait::async_trait]
pub trait TaskStore: Send + Sync {
    /// Returns the greatest id of a stored task. Ids of new tasks must be greater.
    async fn last_id(&self) -> DatabaseResult<Option<TaskId>>;

    /// Accepts a task if its caller's limits allow it. It checks the number of waiting tasks, the
    /// stored data and then the rate, all in the same transaction. For a repeated idempotency key
    /// it returns the first task's id.
    async fn enqueue(
        &self,
        task: NewTask,
        limit: Limit,
        now: Timestamp,
    ) -> Result<TaskId, EnqueueError>;

    /// Checks early, before a body is sent in vain, whether the account's waiting tasks leave room
    /// for one more. A request with a known idempotency key always passes. This changes nothing;
    /// [`TaskStore::enqueue`] decides.
    async fn foresee(
        &self,
        account: AccountId,
        limit: Limit,
        key: Option<&str>,
    ) -> Result<(), EnqueueError>;

    /// Counts a request in the account's rate: a synchronous predict, or a request that will create
    /// a task. The latter is then not counted again ([`Limit::counted`]).
    async fn admit(
        &self,
        account: AccountId,
        limit: Limit,
        now: Timestamp,
    ) -> Result<(), EnqueueError>;

    /// Claims up to `max` waiting tasks, and more for accounts that run less than their share
    /// ([`TaskLimits::share`]).
    ///
    /// Accounts take turns: the one served longest ago comes first, of several the one with the
    /// least number. The tasks of an account are claimed in the order of arrival, up to its running
    /// limit. A claim counts as an attempt. `turns` is the state before the first of these claims.
    async fn claim(
        &self,
        max: usize,
        turns: &Arc<AccountTurns>,
        limits: &TaskLimits,
    ) -> DatabaseResult<Vec<ClaimedTask>>;

    /// Reports to other processes that this one lives. Returns the leases that are lost. Running tasks of this process
    /// that are not among `held` return to the queue: an error hid their claim.
    async fn heartbeat(&self, held: &[Lease]) -> DatabaseResult<Vec<Lease>>;

    /// Stores the answer. Returns `false` and changes nothing if the lease was lost. The answer
    /// expires at `expires_at` if its content is one that expires
    /// ([`StoredContent::expires`](super::StoredContent::expires)).
    async fn complete(
        &self,
        lease: Lease,
        answer: StoredAnswer,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> DatabaseResult<bool>;

    /// Ends a task with an error. Returns `false` if the lease was lost.
    async fn fail(
        &self,
        lease: Lease,
        failure: TaskFailure,
        now: Timestamp,
    ) -> DatabaseResult<bool>;

    /// Returns a running task to its place in the queue. Returns `false` if the lease was lost.
    ///
    /// `crashed` means that its worker process crashed, which is counted. After `attempts` crashes,
    /// or if the service wants no retry, the task is canceled with [`TaskFailure::crashed`].
    async fn release(
        &self,
        lease: Lease,
        crashed: bool,
        attempts: u32,
        now: Timestamp,
    ) -> DatabaseResult<bool>;

    /// Cancels a task for its user; a final state stays as it is. Returns `None` if the task does
    /// not exist.
    async fn cancel(&self, task: TaskId, now: Timestamp) -> DatabaseResult<Option<Task>>;

    /// Returns a task.
    async fn get(&self, task: TaskId) -> DatabaseResult<Option<Task>>;

    /// Returns how many waiting tasks of its account come before a task; `None` if it is not
    /// waiting.
    async fn place(&self, task: TaskId) -> DatabaseResult<Option<u64>>;

    /// Lists an account's tasks, newest first: at most `max`, older than `before`, in this state.
    async fn list(
        &self,
        caller: AccountId,
        status: Option<Status>,
        before: Option<TaskId>,
        max: usize,
    ) -> DatabaseResult<Vec<Task>>;

    /// Treats the running tasks of earlier processes of this server like [`TaskStore::release`] with `crashed`. It is
    /// called when the server starts. Returns their number.
    async fn recover(&self, attempts: u32, now: Timestamp) -> DatabaseResult<u64>;

    /// Does the same for the running tasks of other servers that no longer live.
    async fn reap(&self, attempts: u32, now: Timestamp) -> DatabaseResult<u64> {
        let _ = (attempts, now);
        Ok(0)
    }

    /// Marks up to `max` expired answers as gone, oldest first. The caller deletes their blobs.
    async fn sweep(&self, now: Timestamp, max: usize) -> DatabaseResult<RemovedTasks>;

    /// Deletes a finished task. The caller deletes its blob.
    async fn delete(&self, task: TaskId) -> DatabaseResult<Deletion>;

    /// Deletes up to `max` tasks that ended at or before a time, in the order in which they ended.
    /// The caller deletes their blobs.
    async fn purge(&self, ended_by: Timestamp, max: usize) -> DatabaseResult<RemovedTasks>;

    /// Lists the blobs that tasks need: at most one per task, in the order of tasks, at most `max`,
    /// of tasks after this one.
    async fn blobs(&self, after: Option<TaskId>, max: usize) -> DatabaseResult<Vec<NamedBlob>>;

    /// Returns the bytes that an account's tasks use.
    async fn stored(&self, account: AccountId) -> DatabaseResult<u64>;

    /// Returns statistics of the stored tasks.
    async fn statistics(&self) -> DatabaseResult<Statistics>;

    /// Checks that new data would be stored durably, with a durable write that changes nothing.
    /// Fails also if damage was detected since the store was opened.
    async fn health(&self) -> DatabaseResult<()>;

    /// Checks all stored data for damage, concurrently with other operations.
    async fn check(&self) -> DatabaseResult<()>;

    /// Returns the numbers of waiting and running tasks of all accounts.
    async fn load(&self) -> DatabaseResult<(u64, u64)>;

    /// Returns the acceptance time of the task that waits longest.
    async fn oldest_waiting(&self) -> DatabaseResult<Option<Timestamp>>;

    /// Returns how long operations of this process take.
    fn times(&self) -> &StoreTimes;

    /// Returns a channel that changes whenever a task may be claimable.
    fn wakeups(&self) -> watch::Receiver<u64>;

    /// Returns a channel of tasks that reached a final state by a call of this process.
    fn events(&self) -> broadcast::Receiver<TaskEvent>;

    /// Returns a channel that changes whenever other processes may have ended tasks; `None` if there are none.
    fn news(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Returns those of the tasks that other processes ended.
    async fn ended(&self, tasks: &[TaskId]) -> DatabaseResult<Vec<TaskEvent>> {
        let _ = tasks;
        Ok(Vec::new())
    }
}
