//! Removal of expired answers and of tasks that ended.
//!
//! Invariant: rows of tasks are held before those of their accounts. Blobs are reported to the caller, who deletes
//! them.

use std::collections::BTreeSet;

use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::accounts;
use super::rows::{self, Fault};
use crate::account::AccountId;
use crate::database::Timestamp;
use crate::task::stored::EXPIRED;
use crate::task::{Deletion, Lease, RemovedTasks, TaskId};

/// The columns that [`RemovableTask::of`] reads.
const ENDED_COLUMNS: &str = "id, attempt, caller, answer_sha256 IS NOT NULL,
    coalesce(answer_size, length(answer), 0)::BIGINT";

/// The fields of a task that ended which its removal needs.
struct RemovableTask {
    lease: Lease,
    caller: AccountId,
    /// True if the answer is a blob.
    is_blob: bool,
    /// Size of the answer, in bytes.
    bytes: u64,
}

impl RemovableTask {
    fn of(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            lease: rows::lease(row)?,
            caller: AccountId(row.try_get(2)?),
            is_blob: row.try_get(3)?,
            bytes: rows::number(row, 4)?,
        })
    }
}

/// Marks expired answers as gone.
pub(super) async fn sweep(
    transaction: &Transaction<'_>,
    now: Timestamp,
    max: i64,
) -> Result<RemovedTasks, Fault> {
    let gone = held_until(transaction, "expires_at", now, max).await?;
    let mark = "UPDATE task_done SET outcome = $2, answer = NULL, answer_size = NULL,
        answer_sha256 = NULL, expires_at = NULL WHERE id = ANY($1)";
    let mark = transaction.prepare_cached(mark).await?;
    transaction.execute(&mark, &[&ids(&gone), &EXPIRED]).await?;
    removed(transaction, &gone, 0).await
}

/// Deletes tasks that ended at or before a time.
pub(super) async fn purge(
    transaction: &Transaction<'_>,
    ended_by: Timestamp,
    max: i64,
) -> Result<RemovedTasks, Fault> {
    let gone = held_until(transaction, "completed_at", ended_by, max).await?;
    delete_rows(transaction, &gone).await
}

/// Deletes a task that ended.
pub(super) async fn delete(transaction: &Transaction<'_>, task: TaskId) -> Result<Deletion, Fault> {
    let sql = format!("SELECT {ENDED_COLUMNS} FROM task_done WHERE id = $1 FOR UPDATE");
    let gone = held(transaction, &sql, &[&task.uuid()]).await?;
    if gone.is_empty() {
        let sql = "SELECT 1 FROM task_active WHERE id = $1";
        let active = transaction.query_opt(sql, &[&task.uuid()]).await?;
        return Ok(active.map_or(Deletion::Unknown, |_| Deletion::Unfinished));
    }
    delete_rows(transaction, &gone).await.map(Deletion::Done)
}

/// Selects rows by a column with a time, the earliest first, and takes them.
async fn held_until(
    transaction: &Transaction<'_>,
    column: &str,
    time: Timestamp,
    max: i64,
) -> Result<Vec<RemovableTask>, Fault> {
    let sql = format!(
        "SELECT {ENDED_COLUMNS} FROM task_done WHERE {column} <= $1
        ORDER BY {column}, id LIMIT $2 FOR UPDATE SKIP LOCKED"
    );
    held(transaction, &sql, &[&time.0, &max]).await
}

/// Selects rows and takes them.
async fn held(
    transaction: &Transaction<'_>,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<RemovableTask>, Fault> {
    let select = transaction.prepare_cached(sql).await?;
    let rows = transaction.query(&select, values).await?;
    rows.iter().map(RemovableTask::of).collect()
}

async fn delete_rows(
    transaction: &Transaction<'_>,
    gone: &[RemovableTask],
) -> Result<RemovedTasks, Fault> {
    let ids = ids(gone);
    for sql in [
        "DELETE FROM task_done WHERE id = ANY($1)",
        "DELETE FROM task_repeat WHERE task = ANY($1)",
    ] {
        let delete = transaction.prepare_cached(sql).await?;
        transaction.execute(&delete, &[&ids]).await?;
    }
    removed(transaction, gone, 1).await
}

/// Subtracts removed answers, and `tasks` (0 or 1) for each, from the counts of their accounts.
async fn removed(
    transaction: &Transaction<'_>,
    gone: &[RemovableTask],
    tasks: u64,
) -> Result<RemovedTasks, Fault> {
    if gone.is_empty() {
        return Ok(RemovedTasks::default());
    }
    let callers: BTreeSet<AccountId> = gone.iter().map(|ended| ended.caller).collect();
    let mut loads = accounts::hold(transaction, &callers).await?;
    for ended in gone {
        let load = loads.entry(ended.caller).or_default();
        load.tasks = load.tasks.saturating_sub(tasks);
        load.bytes = load.bytes.saturating_sub(ended.bytes);
    }
    accounts::store(transaction, &loads).await?;
    let blobs = gone.iter().filter(|ended| ended.is_blob);
    let blobs = blobs.map(|ended| ended.lease);
    Ok(RemovedTasks::new(gone.len(), blobs))
}

fn ids(gone: &[RemovableTask]) -> Vec<Uuid> {
    gone.iter().map(|ended| ended.lease.task.uuid()).collect()
}
