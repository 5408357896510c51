//! An in-memory task store: the protocol in its simplest form, and the reference model for other
//! stores in tests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pkgtool_serve::account::{AccountId, UNLIMITED};
use pkgtool_serve::database::{DatabaseError, Timestamp};
use pkgtool_serve::task::{
    AccountTurns, ClaimedTask, Deletion, EnqueueError, Lease, Limit, NamedBlob, NewTask, OnCrash,
    Quota, RemovedTasks, Statistics, Status, StoreTimes, StoredAnswer, StoredContent, Task,
    TaskEvent, TaskFailure, TaskId, TaskLimits, TaskOutcome, TaskStore,
};
use tokio::sync::{broadcast, watch};

/// Maximum place in the queue that is counted.
const FURTHEST_PLACE: usize = 1000;

/// A task store whose tasks end with the process.
#[derive(Debug)]
pub(super) struct MemoryTasks {
    state: Mutex<State>,
    wakeups: watch::Sender<u64>,
    events: broadcast::Sender<TaskEvent>,
    times: StoreTimes,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<TaskId, Row>,
    /// Times of each account's requests in the last second, oldest first.
    requests: BTreeMap<AccountId, VecDeque<i64>>,
}

#[derive(Debug)]
struct Row {
    new: NewTask,
    task: Task,
    crashes: u32,
}

impl Default for MemoryTasks {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            wakeups: watch::Sender::new(0),
            events: broadcast::Sender::new(4096),
            times: StoreTimes::default(),
        }
    }
}

impl MemoryTasks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.wakeups
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    fn ended(&self, task: &Task) {
        self.wake();
        // The event may have no receiver.
        let _ = self.events.send(TaskEvent {
            task: task.id,
            status: task.status,
        });
    }

    /// Requeues a running task, or cancels it after too many attempts.
    fn put_back(&self, row: &mut Row, crashed: bool, attempts: u32, now: Timestamp) {
        row.crashes += u32::from(crashed);
        let retries = row.new.on_crash == OnCrash::Retry;
        if crashed && (!retries || row.crashes >= attempts) {
            row.end(
                Status::Canceled,
                TaskOutcome::Failed(TaskFailure::crashed()),
                now,
            );
            self.ended(&row.task);
        } else {
            row.task.status = Status::Queued;
            self.wake();
        }
    }

    fn finish(&self, lease: Lease, status: Status, outcome: TaskOutcome, now: Timestamp) -> bool {
        let mut state = self.state();
        let Some(row) = state.held(lease) else {
            return false;
        };
        row.end(status, outcome, now);
        self.ended(&row.task);
        true
    }
}

impl State {
    /// Counts a request, or returns the milliseconds until the next one is accepted.
    fn rate(&mut self, account: AccountId, limit: u32, now: Timestamp) -> Result<(), u64> {
        if limit == UNLIMITED {
            return Ok(());
        }
        let made = self.requests.entry(account).or_default();
        // The clock jumped back: requests from the future count as made now.
        for at in made.iter_mut() {
            *at = (*at).min(now.0);
        }
        made.retain(|at| now.0 - *at < 1000);
        let limit = limit as usize;
        if made.len() < limit {
            made.push_back(now.0);
            return Ok(());
        }
        let leaves = if limit == 0 {
            now.0
        } else {
            made[made.len() - limit]
        };
        Err((leaves + 1000 - now.0).unsigned_abs())
    }

    fn count(&self, account: AccountId, status: Status) -> usize {
        let tasks = self.rows.values();
        tasks
            .filter(|row| row.task.caller == account && row.task.status == status)
            .count()
    }

    /// Returns the number of accounts with unfinished tasks.
    fn active(&self) -> usize {
        let rows = self.rows.values();
        let active = rows.filter(|row| !row.task.status.is_final());
        let callers: BTreeSet<AccountId> = active.map(|row| row.task.caller).collect();
        callers.len()
    }

    /// Checks a task against its account's quotas.
    fn quota(&self, task: &NewTask, quota: Quota) -> Result<(), EnqueueError> {
        let own = || {
            let rows = self.rows.values();
            rows.filter(|row| row.task.caller == task.caller)
        };
        let limit = quota.tasks;
        if limit > 0 && own().count() as u64 >= limit {
            return Err(EnqueueError::TooManyStored { limit });
        }
        let held: u64 = own().map(Row::bytes).sum();
        let (size, limit) = (task.bytes(), quota.bytes);
        let held = held + quota.other_bytes;
        if limit > 0 && held + size > limit {
            return Err(EnqueueError::TooManyBytes { held, size, limit });
        }
        Ok(())
    }

    /// Removes the first of these tasks.
    fn remove(
        &mut self,
        mut due: Vec<(Timestamp, TaskId)>,
        max: usize,
        remove: impl Fn(&mut BTreeMap<TaskId, Row>, TaskId),
    ) -> RemovedTasks {
        due.sort();
        due.truncate(max);
        let mut blobs = Vec::new();
        for (_, id) in &due {
            if let Some(NamedBlob {
                attempt: Some(attempt),
                ..
            }) = self.rows.get(id).and_then(Row::blob)
            {
                blobs.push(Lease { task: *id, attempt });
            }
            remove(&mut self.rows, *id);
        }
        blobs.sort_unstable_by_key(|lease| lease.task);
        RemovedTasks {
            count: due.len(),
            blobs,
        }
    }

    fn held(&mut self, lease: Lease) -> Option<&mut Row> {
        let row = self.rows.get_mut(&lease.task)?;
        let held = row.task.status == Status::Processing && row.task.attempt == lease.attempt;
        held.then_some(row)
    }

    /// Returns the account whose turn it is.
    fn next(&self, turns: &AccountTurns, limits: &TaskLimits, share: u32) -> Option<AccountId> {
        let waiting: BTreeSet<AccountId> = self
            .rows
            .values()
            .filter(|row| row.may_run(limits))
            .map(|row| row.task.caller)
            .collect();
        let may_run = |account: &AccountId| {
            let most = limits.running(*account).min(share);
            self.count(*account, Status::Processing) < most as usize
        };
        let turn = |account: &AccountId| (turns.last(*account), *account);
        waiting.into_iter().filter(may_run).min_by_key(turn)
    }
}

impl Row {
    /// Returns whether it waits, and its service is not paused.
    fn may_run(&self, limits: &TaskLimits) -> bool {
        let service = (self.task.owner, self.task.service.clone());
        self.task.status == Status::Queued && !limits.paused().contains(&service)
    }

    /// Returns the stored size, in bytes.
    fn bytes(&self) -> u64 {
        let outcome = self.task.outcome.as_ref();
        outcome.map_or_else(|| self.new.bytes(), TaskOutcome::bytes)
    }

    /// Returns the blob that the content refers to.
    fn blob(&self) -> Option<NamedBlob> {
        let (content, attempt) = match &self.task.outcome {
            None => (&self.new.body, None),
            Some(TaskOutcome::Answer {
                content, attempt, ..
            }) => (content, Some(*attempt)),
            Some(_) => return None,
        };
        match content {
            StoredContent::Inline(_) => None,
            StoredContent::Blob { size, sha256 } => Some(NamedBlob {
                task: self.task.id,
                attempt,
                size: *size,
                sha256: *sha256,
            }),
        }
    }

    fn end(&mut self, status: Status, outcome: TaskOutcome, now: Timestamp) {
        self.task.status = status;
        self.task.completed_at = Some(now.max(self.task.created_at));
        self.task.outcome = Some(outcome);
    }
}

#[async_trait::async_trait]
impl TaskStore for MemoryTasks {
    async fn last_id(&self) -> Result<Option<TaskId>, DatabaseError> {
        Ok(self.state().rows.last_key_value().map(|(id, _)| *id))
    }

    async fn enqueue(
        &self,
        task: NewTask,
        limit: Limit,
        now: Timestamp,
    ) -> Result<TaskId, EnqueueError> {
        let mut state = self.state();
        let (rps, is_counted) = (limit.rps, limit.is_counted);
        let rate = |state: &mut State| {
            if is_counted {
                return Ok(());
            }
            let admitted = state.rate(task.caller, rps, now);
            admitted.map_err(|retry_after| EnqueueError::RateExceeded {
                limit: rps,
                retry_after,
            })
        };
        if let Some(repeat) = &task.idempotency {
            let mut rows = state.rows.values();
            let first = rows.find(|row| {
                let known = row.new.idempotency.as_ref();
                row.task.caller == task.caller && known.is_some_and(|it| it.key == repeat.key)
            });
            if let Some(first) = first {
                let id = first.task.id;
                if first.new.idempotency.as_ref() != Some(repeat) {
                    return Err(EnqueueError::Conflict);
                }
                rate(&mut state)?;
                return Ok(id);
            }
        }
        let quota = limit.quota;
        let limit = limit.waiting;
        if state.count(task.caller, Status::Queued) >= limit as usize {
            return Err(EnqueueError::TooManyWaiting { limit });
        }
        state.quota(&task, quota)?;
        rate(&mut state)?;
        let row = Row {
            task: Task {
                id: task.id,
                caller: task.caller,
                owner: task.owner,
                service: task.service.clone(),
                status: Status::Queued,
                created_at: now,
                completed_at: None,
                attempt: 0,
                outcome: None,
            },
            new: task,
            crashes: 0,
        };
        let id = row.task.id;
        state.rows.insert(id, row);
        self.wake();
        Ok(id)
    }

    async fn foresee(
        &self,
        account: AccountId,
        limit: Limit,
        key: Option<&str>,
    ) -> Result<(), EnqueueError> {
        let state = self.state();
        let mut rows = state.rows.values();
        let known = key.is_some_and(|key| {
            rows.any(|row| {
                let own = row.new.idempotency.as_ref();
                row.task.caller == account && own.is_some_and(|it| it.key == key)
            })
        });
        let limit = limit.waiting;
        if known || state.count(account, Status::Queued) < limit as usize {
            return Ok(());
        }
        Err(EnqueueError::TooManyWaiting { limit })
    }

    async fn admit(
        &self,
        account: AccountId,
        limit: Limit,
        now: Timestamp,
    ) -> Result<(), EnqueueError> {
        if limit.is_counted {
            return Ok(());
        }
        let limit = limit.rps;
        let admitted = self.state().rate(account, limit, now);
        admitted.map_err(|retry_after| EnqueueError::RateExceeded { limit, retry_after })
    }

    async fn claim(
        &self,
        max: usize,
        turns: &Arc<AccountTurns>,
        limits: &TaskLimits,
    ) -> Result<Vec<ClaimedTask>, DatabaseError> {
        let mut state = self.state();
        let mut turns = AccountTurns::clone(turns);
        let mut claimed = Vec::new();
        let share = limits.share(state.active());
        loop {
            let most = if claimed.len() < max { u32::MAX } else { share };
            let Some(account) = state.next(&turns, limits, most) else {
                break;
            };
            turns.served(account);
            let mut rows = state.rows.values_mut();
            let first = rows.find(|row| row.task.caller == account && row.may_run(limits));
            let Some(row) = first else { break };
            row.task.status = Status::Processing;
            row.task.attempt += 1;
            claimed.push(ClaimedTask {
                lease: Lease {
                    task: row.task.id,
                    attempt: row.task.attempt,
                },
                caller: row.task.caller,
                owner: row.task.owner,
                service: row.task.service.clone(),
                body: row.new.body.clone(),
                config: row.new.config.clone(),
                data_type: row.new.data_type.clone(),
                on_crash: row.new.on_crash,
            });
        }
        Ok(claimed)
    }

    async fn heartbeat(&self, held: &[Lease]) -> Result<Vec<Lease>, DatabaseError> {
        let mut state = self.state();
        let lost = held.iter().filter(|lease| state.held(**lease).is_none());
        Ok(lost.copied().collect())
    }

    async fn complete(
        &self,
        lease: Lease,
        answer: StoredAnswer,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<bool, DatabaseError> {
        let outcome = TaskOutcome::Answer {
            expires_at: answer.content.expires().then_some(expires_at),
            content: answer.content,
            media_type: answer.media_type,
            worker: answer.worker,
            attempt: lease.attempt,
        };
        Ok(self.finish(lease, Status::Completed, outcome, now))
    }

    async fn fail(
        &self,
        lease: Lease,
        failure: TaskFailure,
        now: Timestamp,
    ) -> Result<bool, DatabaseError> {
        Ok(self.finish(lease, Status::Canceled, TaskOutcome::Failed(failure), now))
    }

    async fn release(
        &self,
        lease: Lease,
        crashed: bool,
        attempts: u32,
        now: Timestamp,
    ) -> Result<bool, DatabaseError> {
        let mut state = self.state();
        let Some(row) = state.held(lease) else {
            return Ok(false);
        };
        self.put_back(row, crashed, attempts, now);
        Ok(true)
    }

    async fn cancel(&self, task: TaskId, now: Timestamp) -> Result<Option<Task>, DatabaseError> {
        let mut state = self.state();
        let Some(row) = state.rows.get_mut(&task) else {
            return Ok(None);
        };
        if !row.task.status.is_final() {
            row.end(Status::Canceled, TaskOutcome::CanceledByUser, now);
            self.ended(&row.task);
        }
        Ok(Some(row.task.clone()))
    }

    async fn get(&self, task: TaskId) -> Result<Option<Task>, DatabaseError> {
        Ok(self.state().rows.get(&task).map(|row| row.task.clone()))
    }

    async fn place(&self, task: TaskId) -> Result<Option<u64>, DatabaseError> {
        let state = self.state();
        let Some(row) = state.rows.get(&task) else {
            return Ok(None);
        };
        if row.task.status != Status::Queued {
            return Ok(None);
        }
        let before = state.rows.range(..task);
        let before = before.filter(|(_, other)| {
            other.task.caller == row.task.caller && other.task.status == Status::Queued
        });
        Ok(Some(before.take(FURTHEST_PLACE).count() as u64))
    }

    async fn list(
        &self,
        caller: AccountId,
        status: Option<Status>,
        before: Option<TaskId>,
        max: usize,
    ) -> Result<Vec<Task>, DatabaseError> {
        let state = self.state();
        let wanted = |task: &&Task| {
            task.caller == caller
                && status.is_none_or(|status| status == task.status)
                && before.is_none_or(|before| task.id < before)
        };
        let tasks = state.rows.values().rev().map(|row| &row.task);
        Ok(tasks.filter(wanted).take(max).cloned().collect())
    }

    async fn recover(&self, attempts: u32, now: Timestamp) -> Result<u64, DatabaseError> {
        let mut state = self.state();
        let mut count = 0;
        for row in state.rows.values_mut() {
            if row.task.status == Status::Processing {
                self.put_back(row, true, attempts, now);
                count += 1;
            }
        }
        Ok(count)
    }

    async fn sweep(&self, now: Timestamp, max: usize) -> Result<RemovedTasks, DatabaseError> {
        let mut state = self.state();
        let expired = |row: &Row| match &row.task.outcome {
            Some(TaskOutcome::Answer {
                expires_at: Some(at),
                ..
            }) if *at <= now => Some((*at, row.task.id)),
            _ => None,
        };
        let due = state.rows.values().filter_map(expired).collect();
        Ok(state.remove(due, max, |rows, id| {
            if let Some(row) = rows.get_mut(&id) {
                row.task.outcome = Some(TaskOutcome::Expired);
            }
        }))
    }

    async fn delete(&self, task: TaskId) -> Result<Deletion, DatabaseError> {
        let mut state = self.state();
        let Some(row) = state.rows.get(&task) else {
            return Ok(Deletion::Unknown);
        };
        let Some(at) = row.task.completed_at else {
            return Ok(Deletion::Unfinished);
        };
        let removed = state.remove(vec![(at, task)], 1, |rows, id| {
            rows.remove(&id);
        });
        Ok(Deletion::Done(removed))
    }

    async fn purge(&self, ended_by: Timestamp, max: usize) -> Result<RemovedTasks, DatabaseError> {
        let mut state = self.state();
        let ended = |row: &Row| Some((row.task.completed_at?, row.task.id));
        let due = state.rows.values().filter_map(ended);
        let due = due.filter(|(at, _)| *at <= ended_by).collect();
        Ok(state.remove(due, max, |rows, id| {
            rows.remove(&id);
        }))
    }

    async fn blobs(
        &self,
        after: Option<TaskId>,
        max: usize,
    ) -> Result<Vec<NamedBlob>, DatabaseError> {
        let state = self.state();
        let blobs = state.rows.values().filter_map(Row::blob);
        let blobs = blobs.filter(|blob| after.is_none_or(|after| blob.task > after));
        Ok(blobs.take(max).collect())
    }

    async fn stored(&self, account: AccountId) -> Result<u64, DatabaseError> {
        let state = self.state();
        let own = state.rows.values().filter(|row| row.task.caller == account);
        Ok(own.map(Row::bytes).sum())
    }

    async fn statistics(&self) -> Result<Statistics, DatabaseError> {
        let state = self.state();
        let count = |status| {
            let rows = state.rows.values();
            rows.filter(|row| row.task.status == status).count() as u64
        };
        Ok(Statistics {
            waiting: count(Status::Queued),
            running: count(Status::Processing),
            completed: count(Status::Completed),
            canceled: count(Status::Canceled),
            oldest: state.rows.values().next().map(|row| row.task.created_at),
        })
    }

    async fn health(&self) -> Result<(), DatabaseError> {
        Ok(())
    }

    async fn check(&self) -> Result<(), DatabaseError> {
        Ok(())
    }

    async fn load(&self) -> Result<(u64, u64), DatabaseError> {
        let state = self.state();
        let count = |status| {
            let rows = state.rows.values();
            rows.filter(|row| row.task.status == status).count() as u64
        };
        Ok((count(Status::Queued), count(Status::Processing)))
    }

    async fn oldest_waiting(&self) -> Result<Option<Timestamp>, DatabaseError> {
        let state = self.state();
        let mut rows = state.rows.values();
        let first = rows.find(|row| row.task.status == Status::Queued);
        Ok(first.map(|row| row.task.created_at))
    }

    fn times(&self) -> &StoreTimes {
        &self.times
    }

    fn wakeups(&self) -> watch::Receiver<u64> {
        self.wakeups.subscribe()
    }

    fn events(&self) -> broadcast::Receiver<TaskEvent> {
        self.events.subscribe()
    }
}
