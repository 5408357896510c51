//! The task store in SQLite: one writer thread with group commit, and concurrent readers.
//!
//! Invariant: an operation is answered after its commit, and counts in memory equal those in the
//! database.

mod contents;
mod finished;
mod loads;
mod log;
mod moves;
mod reads;
mod removal;
mod rows;
mod shared;
mod writer;

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use tokio::sync::{broadcast, oneshot, watch};

use super::{
    AccountTurns, ClaimedTask, Deletion, EnqueueError, Lease, Limit, NamedBlob, NewTask,
    RemovedTasks, Statistics, Status, StoreTimes, StoredAnswer, Task, TaskEvent, TaskFailure,
    TaskId, TaskLimits, TaskStore,
};
use crate::account::AccountId;
use crate::database::sqlite::Sqlite;
use crate::database::{DatabaseError, DatabaseResult, Timestamp};
use reads::Readers;
use shared::SharedWriter;
use writer::TaskWriter;

/// The task store in a database that one server writes.
#[derive(Debug)]
pub(super) struct SqliteTasks {
    /// Closed before the writer's connection. SQLite checkpoints the write-ahead log when the last
    /// connection is closed, provided that connection may write.
    readers: Readers,
    writer: TaskWriter,
    shared: Arc<SharedWriter>,
    database: Sqlite,
}

impl SqliteTasks {
    /// Opens the task store of a database.
    pub(super) fn open(database: &Sqlite) -> DatabaseResult<Arc<Self>> {
        let readers = Readers::open(database)?;
        let shared = Arc::new(SharedWriter::new());
        Ok(Arc::new(Self {
            writer: TaskWriter::start(database, Arc::clone(&shared))?,
            readers,
            shared,
            database: database.clone(),
        }))
    }
}

#[async_trait::async_trait]
impl TaskStore for SqliteTasks {
    async fn last_id(&self) -> DatabaseResult<Option<TaskId>> {
        self.readers.last_id()
    }

    async fn enqueue(
        &self,
        task: NewTask,
        limit: Limit,
        now: Timestamp,
    ) -> Result<TaskId, EnqueueError> {
        let make = move |moves: &mut moves::Moves<'_>| moves.enqueue(&task, limit, now);
        self.writer.submit(make).await
    }

    async fn foresee(
        &self,
        account: AccountId,
        limit: Limit,
        key: Option<&str>,
    ) -> Result<(), EnqueueError> {
        let most = limit.waiting;
        let has_room = self.readers.waiting(account, most)? < most;
        if has_room
            || key.is_some_and(|key| {
                self.readers
                    .has_idempotency_key(account, key)
                    .unwrap_or(true)
            })
        {
            return Ok(());
        }
        Err(EnqueueError::TooManyWaiting { limit: most })
    }

    async fn admit(
        &self,
        account: AccountId,
        limit: Limit,
        now: Timestamp,
    ) -> Result<(), EnqueueError> {
        self.shared.admit(account, limit, now)
    }

    async fn claim(
        &self,
        max: usize,
        turns: &Arc<AccountTurns>,
        limits: &TaskLimits,
    ) -> DatabaseResult<Vec<ClaimedTask>> {
        let (turns, limits) = (Arc::clone(turns), limits.clone());
        let make = move |moves: &mut moves::Moves<'_>| moves.claim(max, &turns, &limits);
        let began = Instant::now();
        let claimed = self.writer.submit(make).await;
        self.shared.times.claims.time(began.elapsed());
        claimed
    }

    async fn heartbeat(&self, held: &[Lease]) -> DatabaseResult<Vec<Lease>> {
        let held = held.to_vec();
        let make = move |moves: &mut moves::Moves<'_>| moves.lost(&held);
        self.writer.submit(make).await
    }

    async fn complete(
        &self,
        lease: Lease,
        answer: StoredAnswer,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> DatabaseResult<bool> {
        let make =
            move |moves: &mut moves::Moves<'_>| moves.complete(lease, &answer, now, expires_at);
        self.writer.submit(make).await
    }

    async fn fail(
        &self,
        lease: Lease,
        failure: TaskFailure,
        now: Timestamp,
    ) -> DatabaseResult<bool> {
        let make = move |moves: &mut moves::Moves<'_>| moves.fail(lease, &failure, now);
        self.writer.submit(make).await
    }

    async fn release(
        &self,
        lease: Lease,
        crashed: bool,
        attempts: u32,
        now: Timestamp,
    ) -> DatabaseResult<bool> {
        let make =
            move |moves: &mut moves::Moves<'_>| moves.release(lease, (crashed, attempts), now);
        self.writer.submit(make).await
    }

    async fn cancel(&self, task: TaskId, now: Timestamp) -> DatabaseResult<Option<Task>> {
        let make = move |moves: &mut moves::Moves<'_>| moves.cancel(task, now);
        self.writer.submit(make).await
    }

    async fn get(&self, task: TaskId) -> DatabaseResult<Option<Task>> {
        self.readers.get(task)
    }

    async fn place(&self, task: TaskId) -> DatabaseResult<Option<u64>> {
        self.readers.place(task)
    }

    async fn list(
        &self,
        caller: AccountId,
        status: Option<Status>,
        before: Option<TaskId>,
        max: usize,
    ) -> DatabaseResult<Vec<Task>> {
        self.readers.list(caller, status, before, max)
    }

    async fn recover(&self, attempts: u32, now: Timestamp) -> DatabaseResult<u64> {
        let make = move |moves: &mut moves::Moves<'_>| moves.requeue_running(attempts, now);
        self.writer.submit(make).await
    }

    async fn sweep(&self, now: Timestamp, max: usize) -> DatabaseResult<RemovedTasks> {
        let make = move |moves: &mut moves::Moves<'_>| moves.sweep(now, max);
        let removed = self.writer.submit(make).await?;
        if removed.count > 0 {
            self.readers.finished.forget_all();
        }
        Ok(removed)
    }

    async fn delete(&self, task: TaskId) -> DatabaseResult<Deletion> {
        let make = move |moves: &mut moves::Moves<'_>| moves.delete(task);
        let deletion = self.writer.submit(make).await?;
        self.readers.finished.forget(task);
        Ok(deletion)
    }

    async fn purge(&self, ended_by: Timestamp, max: usize) -> DatabaseResult<RemovedTasks> {
        let make = move |moves: &mut moves::Moves<'_>| moves.purge(ended_by, max);
        let removed = self.writer.submit(make).await?;
        if removed.count > 0 {
            self.readers.finished.forget_all();
        }
        Ok(removed)
    }

    async fn blobs(&self, after: Option<TaskId>, max: usize) -> DatabaseResult<Vec<NamedBlob>> {
        self.readers.blobs(after, max)
    }

    async fn stored(&self, account: AccountId) -> DatabaseResult<u64> {
        self.readers.stored(account)
    }

    async fn statistics(&self) -> DatabaseResult<Statistics> {
        self.readers.statistics()
    }

    async fn health(&self) -> DatabaseResult<()> {
        if let Some(damage) = self.database.damage() {
            return Err(damage);
        }
        self.writer.submit(|moves| moves.probe_write()).await
    }

    async fn check(&self) -> DatabaseResult<()> {
        let (reply, checked) = oneshot::channel();
        let database = self.database.clone();
        // Runs on a detached thread, because the end of the process must not wait for it.
        let spawned = thread::Builder::new()
            .name("check".to_owned())
            .spawn(move || reply.send(database.check()));
        let failed = |reason: String| DatabaseError::Other {
            path: self.database.path().display().to_string(),
            reason,
        };
        spawned.map_err(|error| failed(format!("cannot start a thread: {error}")))?;
        checked
            .await
            .map_err(|_| failed("the check was aborted".to_owned()))?
    }

    async fn load(&self) -> DatabaseResult<(u64, u64)> {
        self.readers.load()
    }

    async fn oldest_waiting(&self) -> DatabaseResult<Option<Timestamp>> {
        self.readers.oldest_waiting()
    }

    fn times(&self) -> &StoreTimes {
        &self.shared.times
    }

    fn wakeups(&self) -> watch::Receiver<u64> {
        self.shared.wakeups.subscribe()
    }

    fn events(&self) -> broadcast::Receiver<TaskEvent> {
        self.shared.events.subscribe()
    }
}
