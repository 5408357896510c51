//! Write operations that remove expired answers and finished tasks.
//!
//! Invariant: only finished tasks are removed. Content in the database is removed with them; blobs
//! are reported to the caller, who deletes them.

use rusqlite::{OptionalExtension, Row, params};

use super::contents;
use super::moves::Moves;
use super::rows;
use crate::account::AccountId;
use crate::database::{DatabaseResult, Timestamp};
use crate::task::stored::EXPIRED;
use crate::task::{Deletion, Lease, RemovedTasks, TaskId};

/// The columns that [`EndedTask::of`] reads.
const ENDED_COLUMNS: &str = "id, attempt, caller, answer_number, answer_sha256 IS NOT NULL,
    coalesce(answer_size, length(answer), 0)";

/// The fields of a finished task that its removal needs.
struct EndedTask {
    lease: Lease,
    caller: AccountId,
    /// Row number of the answer in the `content` table.
    number: Option<i64>,
    /// True if the answer is a blob.
    is_blob: bool,
    /// Size of the answer, in bytes.
    bytes: u64,
}

impl EndedTask {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            lease: Lease {
                task: TaskId::from_bytes(row.get(0)?),
                attempt: row.get(1)?,
            },
            caller: AccountId(row.get(2)?),
            number: row.get(3)?,
            is_blob: row.get(4)?,
            bytes: rows::number(row, 5)?,
        })
    }
}

impl Moves<'_> {
    pub(super) fn sweep(&mut self, now: Timestamp, max: usize) -> DatabaseResult<RemovedTasks> {
        let sql = format!(
            "SELECT {ENDED_COLUMNS} FROM task INDEXED BY task_expiring
            WHERE expires_at <= ?1 ORDER BY expires_at, id LIMIT ?2"
        );
        let mark = "UPDATE task SET outcome = ?2, answer = NULL, answer_number = NULL,
                answer_size = NULL, answer_sha256 = NULL, expires_at = NULL
            WHERE id = ?1";
        let gone = self.ended_before(&sql, now, max)?;
        self.remove(&gone, 0, |moves, ended| {
            let mut update = moves.connection.prepare_cached(mark)?;
            update.execute(params![ended.lease.task.as_bytes(), EXPIRED])
        })
    }

    pub(super) fn purge(
        &mut self,
        ended_by: Timestamp,
        max: usize,
    ) -> DatabaseResult<RemovedTasks> {
        let sql = format!(
            "SELECT {ENDED_COLUMNS} FROM task INDEXED BY task_ended
            WHERE completed_at <= ?1 ORDER BY completed_at, id LIMIT ?2"
        );
        let gone = self.ended_before(&sql, ended_by, max)?;
        self.remove(&gone, 1, Self::delete_row)
    }

    pub(super) fn delete(&mut self, task: TaskId) -> DatabaseResult<Deletion> {
        let sql = format!("SELECT {ENDED_COLUMNS}, status >= 2 FROM task WHERE id = ?1");
        let read = || {
            let mut read = self.connection.prepare_cached(&sql)?;
            let found = |row: &Row<'_>| Ok((EndedTask::of(row)?, row.get::<_, bool>(6)?));
            read.query_row([task.as_bytes()], found).optional()
        };
        let ended = match read().map_err(|error| self.database.error(&error))? {
            None => return Ok(Deletion::Unknown),
            Some((_, false)) => return Ok(Deletion::Unfinished),
            Some((ended, true)) => ended,
        };
        let removed = self.remove(&[ended], 1, Self::delete_row)?;
        Ok(Deletion::Done(removed))
    }

    fn ended_before(
        &self,
        sql: &str,
        moment: Timestamp,
        max: usize,
    ) -> DatabaseResult<Vec<EndedTask>> {
        let read = || {
            let mut read = self.connection.prepare_cached(sql)?;
            let max = i64::try_from(max).unwrap_or(i64::MAX);
            let rows = read.query_map(params![moment.0, max], EndedTask::of)?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| self.database.error(&error))
    }

    fn delete_row(&self, ended: &EndedTask) -> rusqlite::Result<usize> {
        let mut delete = self
            .connection
            .prepare_cached("DELETE FROM task WHERE id = ?1")?;
        delete.execute([ended.lease.task.as_bytes()])
    }

    /// Changes the rows and removes their content. `tasks` is the number of tasks that each row
    /// removes (0 or 1).
    fn remove(
        &mut self,
        gone: &[EndedTask],
        tasks: u64,
        change: impl Fn(&Self, &EndedTask) -> rusqlite::Result<usize>,
    ) -> DatabaseResult<RemovedTasks> {
        for ended in gone {
            let removed = change(self, ended);
            let removed = removed.and_then(|_| contents::remove(self.connection, ended.number));
            removed.map_err(|error| self.database.error(&error))?;
            self.loads.free(ended.caller, tasks, ended.bytes);
        }
        let blobs = gone.iter().filter(|ended| ended.is_blob);
        let blobs = blobs.map(|ended| ended.lease);
        Ok(RemovedTasks::new(gone.len(), blobs))
    }
}
