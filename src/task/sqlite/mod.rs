//! Tasks in SQLite: one writer with group commit, readers beside it.
//!
//! Invariant: a move is answered after its commit; counts in memory are those of the database.

mod limits;
mod moves;
mod reads;
mod rows;
mod writer;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{broadcast, watch};

use super::rate::Rates;
use super::{
    Caps, Claimed, Content, EnqueueError, Event, Failure, Lease, NewTask, Status, Task, TaskId,
    TaskIds, TaskStore,
};
use crate::account::AccountId;
use crate::database::{Database, DatabaseError, Timestamp};
use limits::Limits;
use reads::Readers;
use writer::Writer;

/// Ends of tasks that a slow listener may be behind.
const EVENTS: usize = 4096;

/// Tasks in a database that one server writes.
#[derive(Debug)]
pub struct SqliteTasks {
    writer: Writer,
    readers: Readers,
    shared: Arc<Shared>,
    ids: Arc<TaskIds>,
}

/// What the writer and the callers' threads have in common.
#[derive(Debug)]
struct Shared {
    caps: Caps,
    limits: Limits,
    rates: Mutex<Rates>,
    wakeups: watch::Sender<u64>,
    events: broadcast::Sender<Event>,
}

impl SqliteTasks {
    /// The tasks of a database.
    pub fn open(database: &Database, caps: Caps) -> Result<Arc<Self>, DatabaseError> {
        let readers = Readers::open(database)?;
        let shared = Arc::new(Shared {
            caps,
            limits: Limits::default(),
            rates: Mutex::default(),
            wakeups: watch::Sender::new(0),
            events: broadcast::Sender::new(EVENTS),
        });
        let ids = Arc::new(TaskIds::after(readers.last_id()?));
        Ok(Arc::new(Self {
            writer: Writer::start(database, Arc::clone(&shared))?,
            readers,
            shared,
            ids,
        }))
    }

    /// Makes ids for new tasks, greater than all that were stored.
    pub fn ids(&self) -> Arc<TaskIds> {
        Arc::clone(&self.ids)
    }
}

impl SqliteTasks {
    /// Limits the database to so many pages of 4 KiB, as a full disk would.
    pub async fn limit_pages(&self, pages: u32) -> Result<(), DatabaseError> {
        let make = move |moves: &mut moves::Moves<'_>| moves.limit_pages(pages);
        self.writer.submit(make).await
    }
}

impl Shared {
    /// Counts a request in its account's rate.
    fn admit(&self, account: AccountId, limit: u32, now: Timestamp) -> Result<(), EnqueueError> {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = rates.admit(account, limit, now);
        admitted.map_err(|retry_after| EnqueueError::RateExceeded { limit, retry_after })
    }
}

#[async_trait::async_trait]
impl TaskStore for SqliteTasks {
    async fn enqueue(&self, task: NewTask, now: Timestamp) -> Result<TaskId, EnqueueError> {
        let make = move |moves: &mut moves::Moves<'_>| moves.enqueue(&task, now);
        self.writer.submit(make).await
    }

    async fn admit(&self, account: AccountId, now: Timestamp) -> Result<(), EnqueueError> {
        let limit = self.readers.account(&self.shared.limits, account)?;
        match limit {
            Some(limit) if !limit.blocked => self.shared.admit(account, limit.rps, now),
            _ => Err(EnqueueError::Blocked),
        }
    }

    async fn claim(
        &self,
        max: usize,
        lease_until: Timestamp,
    ) -> Result<Vec<Claimed>, DatabaseError> {
        let make = move |moves: &mut moves::Moves<'_>| moves.claim(max, lease_until);
        self.writer.submit(make).await
    }

    async fn heartbeat(
        &self,
        held: &[Lease],
        lease_until: Timestamp,
    ) -> Result<Vec<Lease>, DatabaseError> {
        let held = held.to_vec();
        let make = move |moves: &mut moves::Moves<'_>| moves.heartbeat(&held, lease_until);
        self.writer.submit(make).await
    }

    async fn complete(
        &self,
        lease: Lease,
        answer: Content,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<bool, DatabaseError> {
        let make =
            move |moves: &mut moves::Moves<'_>| moves.complete(lease, &answer, now, expires_at);
        self.writer.submit(make).await
    }

    async fn fail(
        &self,
        lease: Lease,
        failure: Failure,
        now: Timestamp,
    ) -> Result<bool, DatabaseError> {
        let make = move |moves: &mut moves::Moves<'_>| moves.fail(lease, &failure, now);
        self.writer.submit(make).await
    }

    async fn release(
        &self,
        lease: Lease,
        crashed: bool,
        now: Timestamp,
    ) -> Result<bool, DatabaseError> {
        let make = move |moves: &mut moves::Moves<'_>| moves.release(lease, crashed, now);
        self.writer.submit(make).await
    }

    async fn cancel(&self, task: TaskId, now: Timestamp) -> Result<Option<Task>, DatabaseError> {
        let make = move |moves: &mut moves::Moves<'_>| moves.cancel(task, now);
        self.writer.submit(make).await
    }

    async fn get(&self, task: TaskId) -> Result<Option<Task>, DatabaseError> {
        self.readers.get(task)
    }

    async fn place(&self, task: TaskId) -> Result<Option<u64>, DatabaseError> {
        self.readers.place(task)
    }

    async fn list(
        &self,
        caller: AccountId,
        status: Option<Status>,
        before: Option<TaskId>,
        max: usize,
    ) -> Result<Vec<Task>, DatabaseError> {
        self.readers.list(caller, status, before, max)
    }

    async fn recover(&self, now: Timestamp) -> Result<u64, DatabaseError> {
        let make = move |moves: &mut moves::Moves<'_>| moves.give_back(None, now);
        self.writer.submit(make).await
    }

    async fn reap(&self, now: Timestamp) -> Result<u64, DatabaseError> {
        let make = move |moves: &mut moves::Moves<'_>| moves.give_back(Some(now), now);
        self.writer.submit(make).await
    }

    async fn sweep(&self, now: Timestamp, max: usize) -> Result<Vec<Lease>, DatabaseError> {
        let make = move |moves: &mut moves::Moves<'_>| moves.sweep(now, max);
        let swept = self.writer.submit(make).await?;
        self.readers.forget(&swept);
        Ok(swept)
    }

    async fn load(&self) -> Result<(u64, u64), DatabaseError> {
        self.readers.load()
    }

    fn wakeups(&self) -> watch::Receiver<u64> {
        self.shared.wakeups.subscribe()
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }
}
