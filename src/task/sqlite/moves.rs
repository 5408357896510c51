//! The moves of the protocol, inside the writer's transaction, and the counts that limits hold.
//!
//! Invariant: a move changes the counts as it changes the rows; both are undone together.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::reads::find;
use super::rows::{
    self, ANSWERED, CANCELED, CANCELED_BY_USER, CLAIMED, COMPLETED, EXPIRED, FAILED, RUNNING,
    WAITING, columns,
};
use super::shared::Shared;
use crate::account::AccountId;
use crate::database::sqlite::Sqlite;
use crate::database::{DatabaseError, Timestamp};
use crate::task::{
    Claimed, Content, EnqueueError, Event, Failure, Lease, Limit, Limits, NewTask, OnCrash, Status,
    Task, TaskId, Turns,
};

/// What a transaction works with.
pub(super) struct Moves<'a> {
    pub(super) database: &'a Sqlite,
    pub(super) connection: &'a Connection,
    pub(super) loads: &'a mut Loads,
    pub(super) shared: &'a Shared,
    pub(super) news: &'a mut News,
}

/// What listeners learn after the commit.
#[derive(Debug, Default)]
pub(super) struct News {
    /// There may be something to claim.
    pub(super) wake: bool,
    /// Tasks that reached their end.
    pub(super) events: Vec<Event>,
}

/// Waiting and running tasks of each account.
#[derive(Debug, Default)]
pub(super) struct Loads {
    accounts: HashMap<AccountId, Load>,
    /// Accounts with waiting tasks.
    waiting: BTreeSet<AccountId>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Load {
    waiting: u32,
    running: u32,
}

/// A running task that is to be put back.
struct Found {
    task: TaskId,
    caller: AccountId,
    /// How often its process died.
    crashes: u32,
    /// Whether it may run again then.
    retries: bool,
}

/// Whether a request was made before, by its idempotency key.
enum Repeated {
    No,
    /// Another request had the key.
    Another,
    /// It made this task.
    Same(TaskId),
}

impl Loads {
    /// Counts what is stored.
    pub(super) fn read(connection: &Connection) -> Result<Self, rusqlite::Error> {
        let mut loads = Self::default();
        for (status, sql) in [
            (
                WAITING,
                "SELECT caller, count(*) FROM task INDEXED BY task_waiting WHERE status = 0 GROUP BY caller",
            ),
            (
                RUNNING,
                "SELECT caller, count(*) FROM task INDEXED BY task_running WHERE status = 1 GROUP BY caller",
            ),
        ] {
            let mut read = connection.prepare(sql)?;
            let mut rows = read.query([])?;
            while let Some(row) = rows.next()? {
                let account = AccountId(row.get(0)?);
                let count: u32 = row.get(1)?;
                loads.change(account, |load| {
                    if status == WAITING {
                        load.waiting = count;
                    } else {
                        load.running = count;
                    }
                });
            }
        }
        Ok(loads)
    }

    fn of(&self, account: AccountId) -> Load {
        self.accounts.get(&account).copied().unwrap_or_default()
    }

    fn change(&mut self, account: AccountId, change: impl FnOnce(&mut Load)) {
        let load = self.accounts.entry(account).or_default();
        let waited = load.waiting > 0;
        change(load);
        match (waited, load.waiting > 0) {
            (false, true) => {
                self.waiting.insert(account);
            }
            (true, false) => {
                self.waiting.remove(&account);
            }
            _ => {}
        }
    }

    /// Whether a waiting task of an account may run.
    fn may_run(&self, account: AccountId, limits: &Limits) -> bool {
        let load = self.of(account);
        load.waiting > 0 && load.running < limits.running(account)
    }
}

impl Moves<'_> {
    fn fault(&self, error: &rusqlite::Error) -> DatabaseError {
        self.database.error(error)
    }

    /// Writes what is there already.
    pub(super) fn touch(&self) -> Result<(), DatabaseError> {
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
            Repeated::Another => return Err(EnqueueError::Conflict),
            Repeated::Same(first) => {
                self.shared.admit(task.caller, limit, now)?;
                return Ok(first);
            }
        }
        let most = limit.waiting;
        if self.loads.of(task.caller).waiting >= most {
            return Err(EnqueueError::TooManyWaiting { limit: most });
        }
        self.shared.admit(task.caller, limit, now)?;
        self.insert(task, now).map_err(|error| self.fault(&error))?;
        self.loads.change(task.caller, |load| load.waiting += 1);
        // Nobody is woken for an account that may run no more: the end of a task will do that.
        self.news.wake |= self.loads.of(task.caller).running < limit.running;
        Ok(task.id)
    }

    fn repeated(&self, task: &NewTask) -> Result<Repeated, rusqlite::Error> {
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
                Repeated::Another
            })
        });
        Ok(found.optional()?.unwrap_or(Repeated::No))
    }

    fn insert(&self, task: &NewTask, now: Timestamp) -> Result<(), rusqlite::Error> {
        let sql = "INSERT INTO task (id, caller, owner, service, status, created_at, retries,
                config, data_type, body, body_size, body_sha256, repeat_key, repeat_sha256)
            VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
        let (body, size, sha256) = columns(&task.body);
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
            body,
            size,
            sha256,
            repeat.map(|repeat| &repeat.key),
            repeat.map(|repeat| repeat.fingerprint),
        ])?;
        Ok(())
    }

    pub(super) fn claim(
        &mut self,
        max: usize,
        turns: &Turns,
        limits: &Limits,
        lease_until: Timestamp,
    ) -> Result<Vec<Claimed>, DatabaseError> {
        let waiting = self.loads.waiting.iter().copied();
        let mut next: BTreeSet<(u64, AccountId)> = waiting
            .filter(|account| self.loads.may_run(*account, limits))
            .map(|account| (turns.last(account), account))
            .collect();
        let mut claims = turns.claims();
        let mut claimed = Vec::new();
        while claimed.len() < max
            && let Some((_, account)) = next.pop_first()
        {
            let task = self.claim_first(account, lease_until);
            let Some(task) = task.map_err(|error| self.fault(&error))? else {
                // Only a damaged database gets here.
                tracing::error!(account = account.0, "waiting tasks are missing");
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

    /// Claims the first waiting task of an account.
    fn claim_first(
        &self,
        account: AccountId,
        lease_until: Timestamp,
    ) -> Result<Option<Claimed>, rusqlite::Error> {
        let sql = format!(
            "UPDATE task SET status = 1, attempt = attempt + 1, lease_until = ?2
             WHERE id = (SELECT id FROM task INDEXED BY task_waiting
                 WHERE status = 0 AND caller = ?1 ORDER BY id LIMIT 1)
             RETURNING {CLAIMED}"
        );
        let mut update = self.connection.prepare_cached(&sql)?;
        let values = params![account.0, lease_until.0];
        update.query_row(values, rows::claimed).optional()
    }

    pub(super) fn heartbeat(
        &mut self,
        held: &[Lease],
        lease_until: Timestamp,
    ) -> Result<Vec<Lease>, DatabaseError> {
        let sql = "UPDATE task SET lease_until = ?3 WHERE id = ?1 AND attempt = ?2 AND status = 1";
        let prolong = || {
            let mut update = self.connection.prepare_cached(sql)?;
            let mut lost = Vec::new();
            for lease in held {
                let values = params![lease.task.as_bytes(), lease.attempt, lease_until.0];
                if update.execute(values)? == 0 {
                    lost.push(*lease);
                }
            }
            Ok(lost)
        };
        prolong().map_err(|error: rusqlite::Error| self.fault(&error))
    }

    pub(super) fn complete(
        &mut self,
        lease: Lease,
        answer: &Content,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<bool, DatabaseError> {
        let sql = "UPDATE task SET status = ?3, completed_at = max(created_at, ?4), outcome = ?5,
                lease_until = NULL, answer = ?6, answer_size = ?7, answer_sha256 = ?8,
                expires_at = ?9, body = NULL
            WHERE id = ?1 AND attempt = ?2 AND status = 1 RETURNING caller";
        let (inline, size, sha256) = columns(answer);
        let expires_at = inline.is_none().then_some(expires_at.0);
        let end = params![
            lease.task.as_bytes(),
            lease.attempt,
            COMPLETED,
            now.0,
            ANSWERED,
            inline,
            size,
            sha256,
            expires_at
        ];
        self.end_running(lease, sql, end, Status::Completed)
    }

    pub(super) fn fail(
        &mut self,
        lease: Lease,
        failure: &Failure,
        now: Timestamp,
    ) -> Result<bool, DatabaseError> {
        let sql = "UPDATE task SET status = ?3, completed_at = max(created_at, ?4), outcome = ?5,
                lease_until = NULL, failure_status = ?6, failure_code = ?7, failure_message = ?8,
                answer = ?9, body = NULL
            WHERE id = ?1 AND attempt = ?2 AND status = 1 RETURNING caller";
        let end = params![
            lease.task.as_bytes(),
            lease.attempt,
            CANCELED,
            now.0,
            FAILED,
            failure.status,
            failure.code,
            failure.message,
            failure.body
        ];
        self.end_running(lease, sql, end, Status::Canceled)
    }

    /// Runs an update that ends a running task and returns its caller.
    fn end_running(
        &mut self,
        lease: Lease,
        sql: &str,
        values: &[&dyn rusqlite::ToSql],
        status: Status,
    ) -> Result<bool, DatabaseError> {
        let end = || {
            let mut update = self.connection.prepare_cached(sql)?;
            let caller = update.query_row(values, |row| row.get(0).map(AccountId));
            caller.optional()
        };
        let Some(caller) = end().map_err(|error| self.fault(&error))? else {
            return Ok(false);
        };
        self.ended(lease.task, caller, status);
        Ok(true)
    }

    fn ended(&mut self, task: TaskId, caller: AccountId, status: Status) {
        self.loads
            .change(caller, |load| load.running = load.running.saturating_sub(1));
        self.news.wake = true;
        self.news.events.push(Event { task, status });
    }

    pub(super) fn release(
        &mut self,
        lease: Lease,
        (crashed, attempts): (bool, u32),
        now: Timestamp,
    ) -> Result<bool, DatabaseError> {
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

    /// Puts a running task back into the queue, or gives it up if it crashed too often.
    fn put_back(
        &mut self,
        found: &Found,
        (crashed, attempts): (bool, u32),
        now: Timestamp,
    ) -> Result<(), DatabaseError> {
        let (task, caller) = (found.task, found.caller);
        let deaths = found.crashes + u32::from(crashed);
        let given_up = crashed && (!found.retries || deaths >= attempts);
        if given_up {
            let failure = Failure::crashed();
            let sql = "UPDATE task SET status = ?2, completed_at = max(created_at, ?3),
                    outcome = ?4, lease_until = NULL, failure_status = ?5, failure_code = ?6,
                    failure_message = ?7, crashes = ?8, body = NULL
                WHERE id = ?1";
            self.execute(
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
            let sql = "UPDATE task SET status = 0, lease_until = NULL, crashes = ?2 WHERE id = ?1";
            self.execute(sql, params![task.as_bytes(), deaths])?;
            self.loads.change(caller, |load| {
                load.running = load.running.saturating_sub(1);
                load.waiting += 1;
            });
            self.news.wake = true;
        }
        Ok(())
    }

    /// Treats running tasks as crashed: all, or those whose lease ended before a moment.
    pub(super) fn give_back(
        &mut self,
        leases_before: Option<Timestamp>,
        attempts: u32,
        now: Timestamp,
    ) -> Result<u64, DatabaseError> {
        let sql = "SELECT id, caller, crashes, retries FROM task INDEXED BY task_running
            WHERE status = 1 AND (?1 IS NULL OR lease_until <= ?1)";
        let read = || {
            let mut read = self.connection.prepare_cached(sql)?;
            let rows = read.query_map([leases_before.map(|before| before.0)], found)?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        let lost = read().map_err(|error| self.fault(&error))?;
        for found in &lost {
            self.put_back(found, (true, attempts), now)?;
        }
        Ok(lost.len() as u64)
    }

    pub(super) fn cancel(
        &mut self,
        task: TaskId,
        now: Timestamp,
    ) -> Result<Option<Task>, DatabaseError> {
        let found = find(self.connection, task).map_err(|error| self.fault(&error))?;
        let Some(found) = found else {
            return Ok(None);
        };
        if found.status.is_final() {
            return Ok(Some(found));
        }
        let sql = "UPDATE task SET status = ?2, completed_at = max(created_at, ?3), outcome = ?4,
                lease_until = NULL, body = NULL
            WHERE id = ?1";
        let values = params![task.as_bytes(), CANCELED, now.0, CANCELED_BY_USER];
        self.execute(sql, values)?;
        if found.status == Status::Queued {
            self.loads.change(found.caller, |load| {
                load.waiting = load.waiting.saturating_sub(1);
            });
            let status = Status::Canceled;
            self.news.events.push(Event { task, status });
        } else {
            self.ended(task, found.caller, Status::Canceled);
        }
        find(self.connection, task).map_err(|error| self.fault(&error))
    }

    pub(super) fn sweep(
        &mut self,
        now: Timestamp,
        max: usize,
    ) -> Result<Vec<Lease>, DatabaseError> {
        let sql = "UPDATE task SET outcome = ?3, answer_size = NULL, answer_sha256 = NULL,
                expires_at = NULL
            WHERE id IN (SELECT id FROM task WHERE expires_at <= ?1 ORDER BY expires_at, id LIMIT ?2)
            RETURNING id, attempt";
        let gone = || {
            let mut update = self.connection.prepare_cached(sql)?;
            let max = i64::try_from(max).unwrap_or(i64::MAX);
            let rows = update.query_map(params![now.0, max, EXPIRED], |row| {
                Ok(Lease {
                    task: TaskId::from_bytes(row.get(0)?),
                    attempt: row.get(1)?,
                })
            })?;
            let mut gone = rows.collect::<Result<Vec<Lease>, _>>()?;
            // The order in which rows are returned is the database's secret.
            gone.sort_unstable_by_key(|lease| lease.task);
            Ok(gone)
        };
        gone().map_err(|error| self.fault(&error))
    }

    fn execute(&self, sql: &str, values: &[&dyn rusqlite::ToSql]) -> Result<(), DatabaseError> {
        let execute = || self.connection.prepare_cached(sql)?.execute(values);
        execute().map(drop).map_err(|error| self.fault(&error))
    }
}

/// A running task, from its id, caller, crashes and retries.
fn found(row: &Row<'_>) -> Result<Found, rusqlite::Error> {
    Ok(Found {
        task: TaskId::from_bytes(row.get(0)?),
        caller: AccountId(row.get(1)?),
        crashes: row.get(2)?,
        retries: row.get(3)?,
    })
}
