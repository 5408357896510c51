//! Read operations of the task store. Each one sees everything that was committed before it began.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::thread;

use rusqlite::{Connection, OptionalExtension, params};

use super::finished::FinishedCache;
use super::loads::COUNT_STORED_SQL;
use super::rows::{self, TASK_COLUMNS};
use crate::account::AccountId;
use crate::database::sqlite::Sqlite;
use crate::database::{DatabaseResult, Timestamp};
use crate::task::stored::MAX_COUNTED_POSITION;
use crate::task::{NamedBlob, Statistics, Status, Task, TaskId};

/// The connections for reading. A read takes microseconds, so it runs on the calling thread.
#[derive(Debug)]
pub(super) struct Readers {
    database: Sqlite,
    connections: Vec<Mutex<Connection>>,
    next: AtomicUsize,
    pub(super) finished: FinishedCache,
}

impl Readers {
    /// Opens as many connections as threads may read at once.
    pub(super) fn open(database: &Sqlite) -> DatabaseResult<Self> {
        let cores = thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let connect = |_| database.connect_to_read().map(Mutex::new);
        Ok(Self {
            database: database.clone(),
            connections: (0..cores * 2).map(connect).collect::<Result<_, _>>()?,
            next: AtomicUsize::new(0),
            finished: FinishedCache::new(),
        })
    }

    /// Returns the greatest id.
    pub(super) fn last_id(&self) -> DatabaseResult<Option<TaskId>> {
        let sql = "SELECT id FROM task ORDER BY id DESC LIMIT 1";
        self.with(|connection| {
            let id = connection.query_row(sql, [], |row| row.get(0)).optional()?;
            Ok(id.map(TaskId::from_bytes))
        })
    }

    /// Returns a task.
    pub(super) fn get(&self, task: TaskId) -> DatabaseResult<Option<Task>> {
        let removals = match self.finished.find(task) {
            Ok(known) => return Ok(Some(known)),
            Err(removals) => removals,
        };
        let found = self.with(|connection| find(connection, task))?;
        if let Some(found) = &found {
            self.finished.remember(found, removals);
        }
        Ok(found)
    }

    /// Counts the waiting tasks of its account that come before a task.
    pub(super) fn place(&self, task: TaskId) -> DatabaseResult<Option<u64>> {
        let caller = "SELECT caller FROM task WHERE id = ?1 AND status = 0";
        let before = "SELECT count(*) FROM (SELECT 1 FROM task INDEXED BY task_waiting
            WHERE status = 0 AND caller = ?1 AND id < ?2 LIMIT ?3)";
        self.with(|connection| {
            let mut read = connection.prepare_cached(caller)?;
            let caller: Option<i64> = read
                .query_row([task.as_bytes()], |row| row.get(0))
                .optional()?;
            let Some(caller) = caller else {
                return Ok(None);
            };
            let mut read = connection.prepare_cached(before)?;
            let place: i64 = read.query_row(
                params![caller, task.as_bytes(), MAX_COUNTED_POSITION],
                |row| row.get(0),
            )?;
            Ok(u64::try_from(place).ok())
        })
    }

    /// Returns the bytes that an account's tasks use.
    pub(super) fn stored(&self, account: AccountId) -> DatabaseResult<u64> {
        self.with(|connection| {
            let mut read = connection.prepare_cached(COUNT_STORED_SQL)?;
            read.query_row([account.0], |row| rows::number(row, 1))
        })
    }

    /// Counts the waiting tasks of an account, up to `most`.
    pub(super) fn waiting(&self, account: AccountId, most: u32) -> DatabaseResult<u32> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM task INDEXED BY task_waiting
            WHERE status = 0 AND caller = ?1 LIMIT ?2)";
        self.with(|connection| {
            let mut read = connection.prepare_cached(sql)?;
            read.query_row(params![account.0, most], |row| row.get(0))
        })
    }

    /// Returns whether a task of the account has an idempotency key.
    pub(super) fn has_idempotency_key(
        &self,
        account: AccountId,
        key: &str,
    ) -> DatabaseResult<bool> {
        let sql = "SELECT 1 FROM task WHERE caller = ?1 AND repeat_key = ?2";
        self.with(|connection| {
            let mut read = connection.prepare_cached(sql)?;
            read.exists(params![account.0, key])
        })
    }

    /// Lists an account's tasks, newest first.
    pub(super) fn list(
        &self,
        caller: AccountId,
        status: Option<Status>,
        before: Option<TaskId>,
        max: usize,
    ) -> DatabaseResult<Vec<Task>> {
        // One query per state, so that each uses its own index.
        let (index, of_status) = match status {
            None => ("task_of_caller", ""),
            Some(Status::Queued) => ("task_waiting", "AND status = 0"),
            Some(Status::Processing) => ("task_running", "AND status = 1"),
            Some(Status::Completed) => ("task_of_caller", "AND status = 2"),
            Some(Status::Canceled) => ("task_canceled", "AND status = 3"),
        };
        let sql = format!(
            "SELECT {TASK_COLUMNS} FROM task INDEXED BY {index}
             WHERE caller = ?1 AND id < ?2 {of_status}
             ORDER BY id DESC LIMIT ?3"
        );
        let before = before.map_or([0xff; 16], |before| *before.as_bytes());
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.with(|connection| {
            let mut read = connection.prepare_cached(&sql)?;
            let found = read.query_map(params![caller.0, before, max], rows::task)?;
            found.collect()
        })
    }

    /// Returns the numbers of waiting and running tasks.
    pub(super) fn load(&self) -> DatabaseResult<(u64, u64)> {
        let sql = "SELECT (SELECT count(*) FROM task INDEXED BY task_waiting WHERE status = 0),
            (SELECT count(*) FROM task INDEXED BY task_running WHERE status = 1)";
        self.with(|connection| {
            let mut read = connection.prepare_cached(sql)?;
            let (waiting, running): (i64, i64) =
                read.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok((waiting.cast_unsigned(), running.cast_unsigned()))
        })
    }

    /// Returns the acceptance time of the waiting task with the least id.
    pub(super) fn oldest_waiting(&self) -> DatabaseResult<Option<Timestamp>> {
        let sql = "SELECT created_at FROM task
            WHERE id = (SELECT min(id) FROM task INDEXED BY task_waiting WHERE status = 0)";
        self.with(|connection| {
            let mut read = connection.prepare_cached(sql)?;
            let found: Option<i64> = read.query_row([], |row| row.get(0)).optional()?;
            Ok(found.map(Timestamp))
        })
    }

    /// Lists the blobs that tasks need.
    pub(super) fn blobs(
        &self,
        after: Option<TaskId>,
        max: usize,
    ) -> DatabaseResult<Vec<NamedBlob>> {
        // The checksum of a body stays in the row of a finished task, where it is meaningless.
        let sql = "SELECT id, attempt, status < 2,
                CASE WHEN status < 2 THEN body_size ELSE answer_size END,
                CASE WHEN status < 2 THEN body_sha256 ELSE answer_sha256 END
            FROM task WHERE id > ?1
                AND CASE WHEN status < 2 THEN body_sha256 ELSE answer_sha256 END IS NOT NULL
            ORDER BY id LIMIT ?2";
        let after = after.map_or([0; 16], |after| *after.as_bytes());
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.with(|connection| {
            let mut read = connection.prepare_cached(sql)?;
            let found = read.query_map(params![after, max], |row| {
                let is_body: bool = row.get(2)?;
                let attempt: u32 = row.get(1)?;
                Ok(NamedBlob {
                    task: TaskId::from_bytes(row.get(0)?),
                    attempt: (!is_body).then_some(attempt),
                    size: rows::number(row, 3)?,
                    sha256: row.get(4)?,
                })
            })?;
            found.collect()
        })
    }

    /// Returns statistics of the stored tasks.
    pub(super) fn statistics(&self) -> DatabaseResult<Statistics> {
        // A single statement reads a consistent snapshot.
        let sql = "SELECT (SELECT count(*) FROM task INDEXED BY task_of_caller),
            (SELECT count(*) FROM task INDEXED BY task_waiting WHERE status = 0),
            (SELECT count(*) FROM task INDEXED BY task_running WHERE status = 1),
            (SELECT count(*) FROM task INDEXED BY task_canceled WHERE status = 3),
            (SELECT created_at FROM task ORDER BY id LIMIT 1)";
        self.with(|connection| {
            connection.query_row(sql, [], |row| {
                let number = |column| rows::number(row, column);
                let all = number(0)?;
                let (waiting, running, canceled) = (number(1)?, number(2)?, number(3)?);
                Ok(Statistics {
                    waiting,
                    running,
                    completed: all.saturating_sub(waiting + running + canceled),
                    canceled,
                    oldest: row.get::<_, Option<i64>>(4)?.map(Timestamp),
                })
            })
        })
    }

    fn with<T>(&self, call: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> DatabaseResult<T> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.connections.len();
        let free =
            (0..count).find_map(
                |step| match self.connections[(first + step) % count].try_lock() {
                    Ok(free) => Some(free),
                    Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                    Err(TryLockError::WouldBlock) => None,
                },
            );
        let connection = free.unwrap_or_else(|| {
            let waited = self.connections[first % count].lock();
            waited.unwrap_or_else(PoisonError::into_inner)
        });
        call(&connection).map_err(|error| self.database.error(&error))
    }
}

/// Reads a task.
pub(super) fn find(connection: &Connection, task: TaskId) -> rusqlite::Result<Option<Task>> {
    let sql = format!("SELECT {TASK_COLUMNS} FROM task WHERE id = ?1");
    let mut read = connection.prepare_cached(&sql)?;
    read.query_row([task.as_bytes()], rows::task).optional()
}
