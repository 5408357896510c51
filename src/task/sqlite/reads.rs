//! Reading beside the writer: every read sees what was committed before it began.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::thread;

use rusqlite::{Connection, OptionalExtension, params};

use super::limits::{Limit, Limits};
use super::rows::{self, TASK};
use crate::account::AccountId;
use crate::database::{Database, DatabaseError};
use crate::task::{Status, Task, TaskId};

/// How far a place in the queue is counted.
const FURTHEST_PLACE: u64 = 1000;

/// Connections that read. A read takes microseconds, so it is made where it is asked for.
#[derive(Debug)]
pub(super) struct Readers {
    database: Database,
    connections: Vec<Mutex<Connection>>,
    next: AtomicUsize,
}

impl Readers {
    /// As many as threads may read at once.
    pub(super) fn open(database: &Database) -> Result<Self, DatabaseError> {
        let cores = thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let connect = |_| database.connect_to_read().map(Mutex::new);
        Ok(Self {
            database: database.clone(),
            connections: (0..cores * 2).map(connect).collect::<Result<_, _>>()?,
            next: AtomicUsize::new(0),
        })
    }

    /// An account's limits, as they are or were a moment ago.
    pub(super) fn account(
        &self,
        limits: &Limits,
        account: AccountId,
    ) -> Result<Option<Limit>, DatabaseError> {
        if !limits.are_fresh() {
            self.with(|connection| limits.refresh(connection))?;
        }
        Ok(limits.of(account))
    }

    /// The greatest id.
    pub(super) fn last_id(&self) -> Result<Option<TaskId>, DatabaseError> {
        let sql = "SELECT id FROM task ORDER BY id DESC LIMIT 1";
        self.with(|connection| {
            let id = connection.query_row(sql, [], |row| row.get(0)).optional()?;
            Ok(id.map(TaskId::from_bytes))
        })
    }

    /// A task.
    pub(super) fn get(&self, task: TaskId) -> Result<Option<Task>, DatabaseError> {
        self.with(|connection| find(connection, task))
    }

    /// Tasks of its account that wait before a task.
    pub(super) fn place(&self, task: TaskId) -> Result<Option<u64>, DatabaseError> {
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
                params![caller, task.as_bytes(), FURTHEST_PLACE.cast_signed()],
                |row| row.get(0),
            )?;
            Ok(u64::try_from(place).ok())
        })
    }

    /// An account's tasks, the newest first.
    pub(super) fn list(
        &self,
        caller: AccountId,
        status: Option<Status>,
        before: Option<TaskId>,
        max: usize,
    ) -> Result<Vec<Task>, DatabaseError> {
        // Written out, so that each finds its own index.
        let (index, of_status) = match status {
            None => ("task_of_caller", ""),
            Some(Status::Queued) => ("task_waiting", "AND status = 0"),
            Some(Status::Processing) => ("task_running", "AND status = 1"),
            Some(Status::Completed) => ("task_of_caller", "AND status = 2"),
            Some(Status::Canceled) => ("task_canceled", "AND status = 3"),
        };
        let sql = format!(
            "SELECT {TASK} FROM task INDEXED BY {index}
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

    /// How many wait, and how many run.
    pub(super) fn load(&self) -> Result<(u64, u64), DatabaseError> {
        let sql = "SELECT (SELECT count(*) FROM task INDEXED BY task_waiting WHERE status = 0),
            (SELECT count(*) FROM task INDEXED BY task_running WHERE status = 1)";
        self.with(|connection| {
            let mut read = connection.prepare_cached(sql)?;
            let (waiting, running): (i64, i64) =
                read.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok((waiting.cast_unsigned(), running.cast_unsigned()))
        })
    }

    fn with<T>(
        &self,
        call: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, DatabaseError> {
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

/// A task.
pub(super) fn find(connection: &Connection, task: TaskId) -> Result<Option<Task>, rusqlite::Error> {
    let sql = format!("SELECT {TASK} FROM task WHERE id = ?1");
    let mut read = connection.prepare_cached(&sql)?;
    read.query_row([task.as_bytes()], rows::task).optional()
}
