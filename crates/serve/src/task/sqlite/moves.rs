//! The write operations of the task store ("moves"), which run inside the writer's transaction.
//!
//! Invariant: a move changes the counts together with the rows, and both are rolled back together.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::contents::{self, PlacedContent};
use super::loads::Loads;
use super::reads::find;
use super::rows::{self, CANCELED, CLAIMED_COLUMNS, COMPLETED};
use super::shared::SharedWriter;
use crate::account::AccountId;
use crate::database::sqlite::Sqlite;
use crate::database::{DatabaseError, DatabaseResult, Timestamp};
use crate::task::stored::{ANSWERED, CANCELED_BY_USER, FAILED};
use crate::task::{
    AccountTurns, ClaimedTask, EnqueueError, Lease, Limit, NewTask, OnCrash, Quota, Status,
    StoredAnswer, StoredContent, Task, TaskEvent, TaskFailure, TaskId, TaskLimits,
};

/// The state that the moves of one transaction work on.
pub(super) struct Moves<'a> {
    pub(super) database: &'a Sqlite,
    pub(super) connection: &'a Connection,
    pub(super) loads: &'a mut Loads,
    pub(super) shared: &'a SharedWriter,
    pub(super) news: &'a mut News,
}

/// Notifications that listeners receive after the commit.
#[derive(Debug, Default)]
pub(super) struct News {
    /// A task may be claimable.
    pub(super) wake: bool,
    /// Tasks that ended.
    pub(super) events: Vec<TaskEvent>,
    /// True if this process runs the tasks.
    pub(super) is_server: bool,
}

/// A running task to return to the queue.
struct RunningTask {
    task: TaskId,
    caller: AccountId,
    /// Number of crashes of its process.
    crashes: u32,
    /// True if it may run again after a crash.
    retries: bool,
}

/// How a running task ends: with an answer, or with a failure.
struct TaskEnd<'e> {
    /// The answer, or the body of the failure.
    place: PlacedContent<'e>,
    media_type: Option<&'e str>,
    worker: Option<&'e str>,
    expires_at: Option<Timestamp>,
    failure: Option<&'e TaskFailure>,
}

/// Result of looking up a request by its idempotency key.
enum Repeated {
    No,
    /// The key belongs to another request.
    OtherRequest,
    /// The same request created this task.
    Same(TaskId),
}

impl Moves<'_> {
    fn fault(&self, error: &rusqlite::Error) -> DatabaseError {
        self.database.error(error)
    }

    /// Writes a value that is already stored, to check that writing works.
    pub(super) fn probe_write(&self) -> DatabaseResult<()> {
        let touched = || {
            let read = |row: &Row<'_>| row.get(0);
            let version: i64 = self.connection.query_row("PRAGMA user_version", [], read)?;
            self.connection.pragma_update(None, "user_version", version)
        };
        touched().map_err(|error| self.fault(&error))
    }

    pub(super) fn enqueue(
        &mut self,
        task: &NewTask,
        limit: Limit,
        now: Timestamp,
    ) -> Result<TaskId, EnqueueError> {
        let repeated = self.repeated(task);
        match repeated.map_err(|error| self.fault(&error))? {
            Repeated::No => {}
            Repeated::OtherRequest => return Err(EnqueueError::Conflict),
            Repeated::Same(first) => {
                self.shared.admit(task.caller, limit, now)?;
                return Ok(first);
            }
        }
        let most = limit.waiting;
        if self.loads.of(task.caller).waiting >= most {
            return Err(EnqueueError::TooManyWaiting { limit: most });
        }
        self.within_quota(task, limit.quota, now)?;
        self.shared.admit(task.caller, limit, now)?;
        self.insert(task, now).map_err(|error| self.fault(&error))?;
        self.loads.change(task.caller, |load| load.waiting += 1);
        self.loads.store(task.caller, 1, task.bytes());
        // An account at its running limit wakes nobody; the end of one of its tasks will.
        self.news.wake |= self.loads.of(task.caller).running < limit.running;
        Ok(task.id)
    }

    /// Checks that a task fits into its account's storage quota.
    fn within_quota(
        &mut self,
        task: &NewTask,
        quota: Quota,
        now: Timestamp,
    ) -> Result<(), EnqueueError> {
        if quota.tasks == 0 && quota.bytes == 0 {
            return Ok(());
        }
        let mut within = Ok(());
        // The cached count may be too high, because other processes delete too.
        for doubt in [false, true] {
            let stored = self.loads.stored(self.connection, task.caller, doubt, now);
            let stored = stored.map_err(|error| self.database.error(&error))?;
            let counts = (stored.tasks, stored.bytes);
            within = EnqueueError::check_quota(quota, counts, task.bytes());
            if within.is_ok() {
                break;
            }
        }
        within
    }

    fn repeated(&self, task: &NewTask) -> rusqlite::Result<Repeated> {
        let Some(repeat) = &task.idempotency else {
            return Ok(Repeated::No);
        };
        let sql = "SELECT id, repeat_sha256 FROM task WHERE caller = ?1 AND repeat_key = ?2";
        let mut read = self.connection.prepare_cached(sql)?;
        let found = read.query_row(params![task.caller.0, repeat.key], |row| {
            let fingerprint: [u8; 32] = row.get(1)?;
            Ok(if fingerprint == repeat.fingerprint {
                Repeated::Same(TaskId::from_bytes(row.get(0)?))
            } else {
                Repeated::OtherRequest
            })
        });
        Ok(found.optional()?.unwrap_or(Repeated::No))
    }

    fn insert(&self, task: &NewTask, now: Timestamp) -> rusqlite::Result<()> {
        let sql = "INSERT INTO task (id, caller, owner, service, status, created_at, retries,
                config, data_type, body, body_size, body_sha256, repeat_key, repeat_sha256,
                body_number, request_bytes)
            VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
        let body = PlacedContent::place(self.connection, &task.body)?;
        let repeat = task.idempotency.as_ref();
        let mut insert = self.connection.prepare_cached(sql)?;
        insert.execute(params![
            task.id.as_bytes(),
            task.caller.0,
            task.owner.0,
            task.service,
            now.0,
            task.on_crash == OnCrash::Retry,
            task.config,
            task.data_type,
            body.inline,
            body.size,
            body.sha256,
            repeat.map(|repeat| &repeat.key),
            repeat.map(|repeat| repeat.fingerprint),
            body.number,
            i64::try_from(task.bytes()).unwrap_or(i64::MAX),
        ])?;
        Ok(())
    }

    pub(super) fn claim(
        &mut self,
        max: usize,
        turns: &AccountTurns,
        limits: &TaskLimits,
    ) -> DatabaseResult<Vec<ClaimedTask>> {
        let share = limits.share(self.loads.active());
        let waiting = self.loads.waiting();
        let mut next: BTreeSet<(u64, AccountId)> = waiting
            .filter(|account| self.loads.may_run(*account, limits))
            .map(|account| (turns.last(account), account))
            .collect();
        let paused = limits.paused();
        let mut claims = turns.claims();
        let mut claimed = Vec::new();
        while let Some((_, account)) = next.pop_first() {
            if claimed.len() >= max && self.loads.of(account).running >= share {
                continue;
            }
            let task = self.claim_first(account, paused);
            let Some(task) = task.map_err(|error| self.fault(&error))? else {
                if !paused.is_empty() {
                    // All its waiting tasks are for paused services.
                    continue;
                }
                // Only a damaged database reaches this point.
                tracing::error!(
                    account = account.0,
                    "waiting tasks are missing from the database"
                );
                self.loads.change(account, |load| load.waiting = 0);
                continue;
            };
            claims += 1;
            self.loads.change(account, |load| {
                load.waiting = load.waiting.saturating_sub(1);
                load.running += 1;
            });
            if self.loads.may_run(account, limits) {
                next.insert((claims, account));
            }
            claimed.push(task);
        }
        Ok(claimed)
    }

    /// Claims the oldest waiting task of an account that is not for a paused service.
    fn claim_first(
        &self,
        account: AccountId,
        paused: &[(AccountId, String)],
    ) -> rusqlite::Result<Option<ClaimedTask>> {
        // The index is enough without this condition.
        let is_paused = "AND owner || '/' || service NOT IN (SELECT value FROM json_each(?2))";
        let sql = format!(
            "UPDATE task SET status = 1, attempt = attempt + 1
             WHERE id = (SELECT id FROM task INDEXED BY task_waiting
                 WHERE status = 0 AND caller = ?1 {} ORDER BY id LIMIT 1)
             RETURNING {CLAIMED_COLUMNS}",
            if paused.is_empty() { "" } else { is_paused }
        );
        let mut update = self.connection.prepare_cached(&sql)?;
        let names = paused
            .iter()
            .map(|(owner, name)| format!("{}/{name}", owner.0));
        let names = names.collect::<serde_json::Value>().to_string();
        let account = account.0;
        let values: &[&dyn rusqlite::ToSql] = if paused.is_empty() {
            &[&account]
        } else {
            &[&account, &names]
        };
        let claimed = update.query_row(values, |row| {
            Ok((rows::claimed(row)?, row.get::<_, Option<i64>>(11)?))
        });
        let Some((mut claimed, number)) = claimed.optional()? else {
            return Ok(None);
        };
        if let Some(number) = number
            && let Some(bytes) = contents::find(self.connection, number)?
        {
            claimed.body = StoredContent::Inline(bytes);
        }
        Ok(Some(claimed))
    }

    /// Returns the leases that are lost.
    pub(super) fn lost(&self, held: &[Lease]) -> DatabaseResult<Vec<Lease>> {
        let sql = "SELECT 1 FROM task WHERE id = ?1 AND attempt = ?2 AND status = 1";
        let find = || {
            let mut read = self.connection.prepare_cached(sql)?;
            let mut lost = Vec::new();
            for lease in held {
                if !read.exists(params![lease.task.as_bytes(), lease.attempt])? {
                    lost.push(*lease);
                }
            }
            Ok(lost)
        };
        find().map_err(|error: rusqlite::Error| self.fault(&error))
    }

    pub(super) fn complete(
        &mut self,
        lease: Lease,
        answer: &StoredAnswer,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> DatabaseResult<bool> {
        let content = &answer.content;
        let place = PlacedContent::place(self.connection, content);
        let end = TaskEnd {
            place: place.map_err(|error| self.fault(&error))?,
            media_type: answer.media_type.as_deref(),
            worker: answer.worker.as_deref(),
            expires_at: content.expires().then_some(expires_at),
            failure: None,
        };
        self.end_running(lease, now, &end)
    }

    pub(super) fn fail(
        &mut self,
        lease: Lease,
        failure: &TaskFailure,
        now: Timestamp,
    ) -> DatabaseResult<bool> {
        let place = match &failure.body {
            Some(body) => PlacedContent::place_bytes(self.connection, body),
            None => Ok(PlacedContent::default()),
        };
        let end = TaskEnd {
            place: place.map_err(|error| self.fault(&error))?,
            media_type: failure.media_type.as_deref(),
            worker: failure.worker.as_deref(),
            expires_at: None,
            failure: Some(failure),
        };
        self.end_running(lease, now, &end)
    }

    /// Ends a running task. If the lease was lost, content that was stored for the outcome is
    /// removed again.
    fn end_running(
        &mut self,
        lease: Lease,
        now: Timestamp,
        end: &TaskEnd<'_>,
    ) -> DatabaseResult<bool> {
        let sql = "UPDATE task SET status = ?3, completed_at = max(created_at, ?4), outcome = ?5,
                body = NULL, config = NULL, data_type = NULL, answer = ?6,
                answer_number = ?7, answer_size = ?8, answer_sha256 = ?9, expires_at = ?10,
                media_type = ?11, failure_status = ?12, failure_code = ?13, failure_message = ?14,
                worker = ?15
            WHERE id = ?1 AND attempt = ?2 AND status = 1 RETURNING caller, body_number, request_bytes";
        let (TaskEnd { place, failure, .. }, connection) = (end, self.connection);
        let (stored, outcome, status) = match failure {
            None => (COMPLETED, ANSWERED, Status::Completed),
            Some(_) => (CANCELED, FAILED, Status::Canceled),
        };
        let values = params![
            lease.task.as_bytes(),
            lease.attempt,
            stored,
            now.0,
            outcome,
            place.inline,
            place.number,
            place.size,
            place.sha256,
            end.expires_at.map(|at| at.0),
            end.media_type,
            failure.map(|failure| failure.status),
            failure.map(|failure| &failure.code),
            failure.map(|failure| &failure.message),
            end.worker,
        ];
        let end = || {
            let mut update = connection.prepare_cached(sql)?;
            let ended = update.query_row(values, rows::ended).optional()?;
            let useless = match &ended {
                Some(ended) => ended.body_number,
                None => place.number,
            };
            contents::remove(connection, useless)?;
            Ok(ended)
        };
        let ended = end().map_err(|error: rusqlite::Error| self.fault(&error))?;
        let Some(ended) = ended else {
            return Ok(false);
        };
        let caller = ended.caller;
        self.loads.store(caller, 0, place.bytes());
        self.loads.free(caller, 0, ended.request_bytes);
        self.ended(lease.task, caller, status);
        Ok(true)
    }

    /// Runs an update that ends a task in any state without an answer, and returns what
    /// [`rows::ended`] reads.
    fn end_empty(&mut self, sql: &str, values: &[&dyn rusqlite::ToSql]) -> DatabaseResult<()> {
        let end = || {
            let mut update = self.connection.prepare_cached(sql)?;
            let ended = update.query_row(values, rows::ended)?;
            contents::remove(self.connection, ended.body_number)?;
            Ok(ended)
        };
        let ended = end().map_err(|error: rusqlite::Error| self.fault(&error))?;
        self.loads.free(ended.caller, 0, ended.request_bytes);
        Ok(())
    }

    fn ended(&mut self, task: TaskId, caller: AccountId, status: Status) {
        self.loads
            .change(caller, |load| load.running = load.running.saturating_sub(1));
        self.news.wake = true;
        self.news.events.push(TaskEvent { task, status });
    }

    pub(super) fn release(
        &mut self,
        lease: Lease,
        (crashed, attempts): (bool, u32),
        now: Timestamp,
    ) -> DatabaseResult<bool> {
        let sql = "SELECT id, caller, crashes, retries FROM task
            WHERE id = ?1 AND attempt = ?2 AND status = 1";
        let read = || {
            let mut read = self.connection.prepare_cached(sql)?;
            let values = params![lease.task.as_bytes(), lease.attempt];
            read.query_row(values, found).optional()
        };
        let Some(found) = read().map_err(|error| self.fault(&error))? else {
            return Ok(false);
        };
        self.put_back(&found, (crashed, attempts), now)?;
        Ok(true)
    }

    /// Returns a running task to the queue, or cancels it if it crashed too often.
    fn put_back(
        &mut self,
        found: &RunningTask,
        (crashed, attempts): (bool, u32),
        now: Timestamp,
    ) -> DatabaseResult<()> {
        let (task, caller) = (found.task, found.caller);
        let deaths = found.crashes + u32::from(crashed);
        let given_up = crashed && (!found.retries || deaths >= attempts);
        if given_up {
            let failure = TaskFailure::crashed();
            let sql = "UPDATE task SET status = ?2, completed_at = max(created_at, ?3),
                    outcome = ?4, failure_status = ?5, failure_code = ?6,
                    failure_message = ?7, crashes = ?8, body = NULL, config = NULL, data_type = NULL
                WHERE id = ?1 RETURNING caller, body_number, request_bytes";
            self.end_empty(
                sql,
                params![
                    task.as_bytes(),
                    CANCELED,
                    now.0,
                    FAILED,
                    failure.status,
                    failure.code,
                    failure.message,
                    deaths
                ],
            )?;
            self.ended(task, caller, Status::Canceled);
        } else {
            let sql = "UPDATE task SET status = 0, crashes = ?2 WHERE id = ?1";
            self.execute(sql, params![task.as_bytes(), deaths])?;
            self.loads.change(caller, |load| {
                load.running = load.running.saturating_sub(1);
                load.waiting += 1;
            });
            self.news.wake = true;
        }
        Ok(())
    }

    /// Treats all running tasks as crashed.
    pub(super) fn requeue_running(&mut self, attempts: u32, now: Timestamp) -> DatabaseResult<u64> {
        let sql = "SELECT id, caller, crashes, retries FROM task INDEXED BY task_running
            WHERE status = 1";
        let read = || {
            let mut read = self.connection.prepare_cached(sql)?;
            let rows = read.query_map([], found)?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        let lost = read().map_err(|error| self.fault(&error))?;
        self.news.is_server = true;
        for found in &lost {
            self.put_back(found, (true, attempts), now)?;
        }
        Ok(lost.len() as u64)
    }

    pub(super) fn cancel(&mut self, task: TaskId, now: Timestamp) -> DatabaseResult<Option<Task>> {
        let found = find(self.connection, task).map_err(|error| self.fault(&error))?;
        let Some(found) = found else {
            return Ok(None);
        };
        if found.status.is_final() {
            return Ok(Some(found));
        }
        let sql = "UPDATE task SET status = ?2, completed_at = max(created_at, ?3), outcome = ?4,
                body = NULL, config = NULL, data_type = NULL
            WHERE id = ?1 RETURNING caller, body_number, request_bytes";
        let values = params![task.as_bytes(), CANCELED, now.0, CANCELED_BY_USER];
        self.end_empty(sql, values)?;
        if found.status == Status::Queued {
            self.loads.change(found.caller, |load| {
                load.waiting = load.waiting.saturating_sub(1);
            });
            let status = Status::Canceled;
            self.news.events.push(TaskEvent { task, status });
        } else {
            self.ended(task, found.caller, Status::Canceled);
        }
        find(self.connection, task).map_err(|error| self.fault(&error))
    }

    fn execute(&self, sql: &str, values: &[&dyn rusqlite::ToSql]) -> DatabaseResult<()> {
        let execute = || self.connection.prepare_cached(sql)?.execute(values);
        execute().map(drop).map_err(|error| self.fault(&error))
    }
}

/// Reads a running task from the columns id, caller, crashes and retries.
fn found(row: &Row<'_>) -> rusqlite::Result<RunningTask> {
    Ok(RunningTask {
        task: TaskId::from_bytes(row.get(0)?),
        caller: AccountId(row.get(1)?),
        crashes: row.get(2)?,
        retries: row.get(3)?,
    })
}
