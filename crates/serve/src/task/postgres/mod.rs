//! The task store in PostgreSQL, which several servers share.
//!
//! Invariant: an operation is answered after its commit. A running task belongs to the node that claimed it, by the
//! number of the node's row and the attempt: an answer of a node whose row is gone is never stored.

mod accounts;
mod changes;
mod claims;
mod columns;
mod group;
mod partitions;
mod reads;
mod removal;
mod rows;
mod servers;
mod signals;
mod suspicion;
mod writer;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{broadcast, watch};

use super::{
    AccountTurns, ClaimedTask, Deletion, EnqueueError, Lease, Limit, NamedBlob, NewTask,
    RemovedTasks, Statistics, Status, StoreTimes, StoredAnswer, Task, TaskEvent, TaskFailure,
    TaskId, TaskLimits, TaskStore,
};
use crate::account::{AccountId, UNLIMITED};
use crate::database::postgres::{BackgroundWork, Postgres};
use crate::database::{DatabaseError, DatabaseResult, Timestamp};
use changes::{Creation, EndingKind, TaskEnding};
use claims::{Claim, ClaimOutcome};
use servers::ServerKey;
pub use servers::{ServerInfo, SharedServers};
use signals::Signals;
use suspicion::Suspicion;
use writer::GroupWriter;

/// The task store in a database that several servers share.
#[derive(Debug)]
pub(super) struct PostgresTasks {
    database: Postgres,
    writer: GroupWriter,
    signals: Arc<Signals>,
    suspicion: Suspicion,
    _work: [BackgroundWork; 2],
}

impl PostgresTasks {
    /// Opens the task store of a database.
    pub(super) async fn open(database: &Postgres) -> DatabaseResult<Arc<Self>> {
        let signals = Arc::new(Signals::new());
        let store = Self {
            database: database.clone(),
            writer: GroupWriter::start(database, Arc::clone(&signals)),
            suspicion: Suspicion::new(database.node().lease()),
            _work: signals::start(database, &signals),
            signals,
        };
        store.make_partitions().await?;
        Ok(Arc::new(store))
    }

    /// Makes a row for this node, unless there is one and `again` is false. Returns its number.
    async fn register(&self, again: bool) -> DatabaseResult<i64> {
        let own = self.database.clone();
        self.database
            .with(move |client| {
                let own = own.clone();
                Box::pin(async move { own.node().register(client, again).await })
            })
            .await
    }

    async fn make_partitions(&self) -> DatabaseResult<()> {
        let now = Timestamp::now();
        self.database
            .transact(move |transaction| Box::pin(partitions::make(transaction, now)))
            .await
    }

    async fn end(&self, lease: Lease, how: EndingKind, now: Timestamp) -> DatabaseResult<bool> {
        let ending = TaskEnding {
            task: lease.task,
            holder: Some((self.database.node().number(), lease.attempt)),
            how,
            now,
        };
        self.writer.end(ending).await
    }

    async fn claim_once(&self, claim: Claim, waits: bool) -> DatabaseResult<ClaimOutcome> {
        let limits = claim.limits.clone();
        let found = self.database.with(move |client| {
            let limits = limits.clone();
            Box::pin(async move { claims::candidates(client, &limits).await })
        });
        let Some(found) = found.await? else {
            return Ok(ClaimOutcome::Claimed(Vec::new()));
        };
        let found = Arc::new(found);
        self.database
            .transact(move |transaction| {
                let (claim, found) = (claim.clone(), Arc::clone(&found));
                Box::pin(async move { claim.make(transaction, &found, waits).await })
            })
            .await
    }

    /// Returns the running tasks of servers to the queue.
    async fn end_servers(
        &self,
        key: ServerKey,
        attempts: u32,
        now: Timestamp,
    ) -> DatabaseResult<u64> {
        let outcome = servers::end(&self.database, key, (attempts, now)).await?;
        let count = outcome.changed();
        self.signals.tell(outcome.wakes, outcome.events);
        Ok(count)
    }
}

#[async_trait::async_trait]
impl TaskStore for PostgresTasks {
    async fn last_id(&self) -> DatabaseResult<Option<TaskId>> {
        self.database
            .with(|client| Box::pin(reads::last_id(client)))
            .await
    }

    async fn enqueue(
        &self,
        task: NewTask,
        limit: Limit,
        now: Timestamp,
    ) -> Result<TaskId, EnqueueError> {
        self.writer.create(Creation { task, limit, now }).await
    }

    async fn foresee(
        &self,
        account: AccountId,
        limit: Limit,
        key: Option<&str>,
    ) -> Result<(), EnqueueError> {
        let most = limit.waiting;
        let key = key.map(str::to_owned);
        let has_room = self.database.with(move |client| {
            let key = key.clone();
            Box::pin(async move {
                Ok(reads::waiting(client, account).await? < u64::from(most)
                    || match &key {
                        Some(key) => reads::has_idempotency_key(client, account, key).await?,
                        None => false,
                    })
            })
        });
        if has_room.await? {
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
        let rps = limit.rps;
        if limit.is_counted || rps == UNLIMITED {
            return Ok(());
        }
        let admitted = self.database.transact(move |transaction| {
            Box::pin(async move {
                let limits = BTreeMap::from([(account, rps)]);
                let mut windows = accounts::hold_rates(transaction, &limits).await?;
                let window = windows.entry(account).or_default();
                let admitted = group::admit(window, rps, now);
                accounts::store_rates(transaction, &windows).await?;
                Ok(admitted)
            })
        });
        admitted.await?
    }

    async fn claim(
        &self,
        max: usize,
        turns: &Arc<AccountTurns>,
        limits: &TaskLimits,
    ) -> DatabaseResult<Vec<ClaimedTask>> {
        let began = Instant::now();
        let mut waits = false;
        let mut node = self.register(false).await?;
        loop {
            let claim = Claim {
                max,
                turns: Arc::clone(turns),
                limits: limits.clone(),
                node,
            };
            match self.claim_once(claim, waits).await? {
                ClaimOutcome::Claimed(tasks) => {
                    self.signals.times.claims.time(began.elapsed());
                    return Ok(tasks);
                }
                ClaimOutcome::NodeIsGone => {
                    node = self.register(true).await?;
                }
                ClaimOutcome::AllAreHeld if waits => return Ok(Vec::new()),
                ClaimOutcome::AllAreHeld => waits = true,
            }
        }
    }

    async fn heartbeat(&self, held: &[Lease]) -> DatabaseResult<Vec<Lease>> {
        let own = self.database.clone();
        let renewed = self.database.with(move |client| {
            let own = own.clone();
            Box::pin(async move {
                let node = own.node();
                if node.number() != 0 && node.renew(client).await? {
                    return Ok(true);
                }
                node.register(client, true).await?;
                Ok(false)
            })
        });
        if !renewed.await? {
            return Ok(held.to_vec());
        }
        let number = self.database.node().number();
        let known = self.database.with(move |client| {
            Box::pin(async move {
                let sql = "SELECT id, attempt FROM task_active WHERE node = $1";
                let read = client.prepare_cached(sql).await?;
                let known = client.query(&read, &[&number]).await?;
                known
                    .iter()
                    .map(rows::lease)
                    .collect::<Result<HashSet<_>, _>>()
            })
        });
        let known = known.await?;
        let own: HashSet<Lease> = held.iter().copied().collect();
        for hidden in known.difference(&own) {
            let put_back = EndingKind::PutBack {
                crashed: false,
                attempts: 0,
            };
            self.end(*hidden, put_back, Timestamp::now()).await?;
        }
        let lost = held.iter().filter(|lease| !known.contains(lease));
        Ok(lost.copied().collect())
    }

    async fn complete(
        &self,
        lease: Lease,
        answer: StoredAnswer,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> DatabaseResult<bool> {
        self.end(lease, EndingKind::Answer(answer, expires_at), now)
            .await
    }

    async fn fail(
        &self,
        lease: Lease,
        failure: TaskFailure,
        now: Timestamp,
    ) -> DatabaseResult<bool> {
        self.end(lease, EndingKind::Failure(failure), now).await
    }

    async fn release(
        &self,
        lease: Lease,
        crashed: bool,
        attempts: u32,
        now: Timestamp,
    ) -> DatabaseResult<bool> {
        self.end(lease, EndingKind::PutBack { crashed, attempts }, now)
            .await
    }

    async fn cancel(&self, task: TaskId, now: Timestamp) -> DatabaseResult<Option<Task>> {
        let found = self.get(task).await?;
        if found.is_none_or(|found| !found.status.is_final()) {
            let ending = TaskEnding {
                task,
                holder: None,
                how: EndingKind::ByUser,
                now,
            };
            self.writer.end(ending).await?;
        }
        self.get(task).await
    }

    async fn get(&self, task: TaskId) -> DatabaseResult<Option<Task>> {
        self.database
            .with(move |client| Box::pin(reads::get(client, task)))
            .await
    }

    async fn place(&self, task: TaskId) -> DatabaseResult<Option<u64>> {
        self.database
            .with(move |client| Box::pin(reads::place(client, task)))
            .await
    }

    async fn list(
        &self,
        caller: AccountId,
        status: Option<Status>,
        before: Option<TaskId>,
        max: usize,
    ) -> DatabaseResult<Vec<Task>> {
        self.database
            .with(move |client| Box::pin(reads::list(client, caller, status, before, max)))
            .await
    }

    async fn recover(&self, attempts: u32, now: Timestamp) -> DatabaseResult<u64> {
        let name = self.database.node().name().to_owned();
        let own = ServerKey::Named(name);
        let count = self.end_servers(own, attempts, now).await?;
        self.register(true).await?;
        Ok(count)
    }

    async fn reap(&self, attempts: u32, now: Timestamp) -> DatabaseResult<u64> {
        let silent = self.database.with(|client| {
            Box::pin(async move {
                let sql = "SELECT id FROM node WHERE lease_until < clock_ms()";
                let silent = client.query(sql, &[]).await?;
                silent
                    .iter()
                    .map(|row| row.try_get(0))
                    .collect::<Result<Vec<i64>, _>>()
            })
        });
        let mut count = 0;
        for node in self.suspicion.confirm(silent.await?) {
            let silent = ServerKey::Silent(node);
            count += self.end_servers(silent, attempts, now).await?;
        }
        Ok(count)
    }

    async fn sweep(&self, now: Timestamp, max: usize) -> DatabaseResult<RemovedTasks> {
        self.make_partitions().await?;
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.database
            .transact(move |transaction| Box::pin(removal::sweep(transaction, now, max)))
            .await
    }

    async fn delete(&self, task: TaskId) -> DatabaseResult<Deletion> {
        self.database
            .transact(move |transaction| Box::pin(removal::delete(transaction, task)))
            .await
    }

    async fn purge(&self, ended_by: Timestamp, max: usize) -> DatabaseResult<RemovedTasks> {
        let dropped = self
            .database
            .transact(move |transaction| Box::pin(partitions::drop_oldest(transaction, ended_by)));
        if let Some(removed) = dropped.await? {
            return Ok(removed);
        }
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.database
            .transact(move |transaction| Box::pin(removal::purge(transaction, ended_by, max)))
            .await
    }

    async fn blobs(&self, after: Option<TaskId>, max: usize) -> DatabaseResult<Vec<NamedBlob>> {
        self.database
            .with(move |client| Box::pin(reads::blobs(client, after, max)))
            .await
    }

    async fn stored(&self, account: AccountId) -> DatabaseResult<u64> {
        self.database
            .with(move |client| Box::pin(reads::stored(client, account)))
            .await
    }

    async fn statistics(&self) -> DatabaseResult<Statistics> {
        self.database
            .with(|client| Box::pin(reads::statistics(client)))
            .await
    }

    async fn health(&self) -> DatabaseResult<()> {
        self.database.health().await
    }

    async fn check(&self) -> DatabaseResult<()> {
        let found = self
            .database
            .with(|client| Box::pin(reads::miscounted(client)));
        let found = found.await?;
        if found.is_empty() {
            return Ok(());
        }
        Err(DatabaseError::Corrupt {
            path: self.database.place(),
            reason: format!("the counts of the accounts {found:?} differ from their tasks"),
        })
    }

    async fn load(&self) -> DatabaseResult<(u64, u64)> {
        self.database
            .with(|client| Box::pin(reads::load(client)))
            .await
    }

    async fn oldest_waiting(&self) -> DatabaseResult<Option<Timestamp>> {
        self.database
            .with(|client| Box::pin(reads::oldest_waiting(client)))
            .await
    }

    fn times(&self) -> &StoreTimes {
        &self.signals.times
    }

    fn wakeups(&self) -> watch::Receiver<u64> {
        self.signals.wakeups.subscribe()
    }

    fn events(&self) -> broadcast::Receiver<TaskEvent> {
        self.signals.events.subscribe()
    }

    fn news(&self) -> Option<watch::Receiver<u64>> {
        Some(self.signals.news.subscribe())
    }

    async fn ended(&self, tasks: &[TaskId]) -> DatabaseResult<Vec<TaskEvent>> {
        let tasks = tasks.to_vec();
        self.database
            .with(move |client| {
                let tasks = tasks.clone();
                Box::pin(async move { reads::ended(client, &tasks).await })
            })
            .await
    }
}
