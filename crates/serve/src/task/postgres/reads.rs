//! Reads of tasks. Each one sees everything that was committed before it began.

use deadpool_postgres::Object;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::rows::{self, Fault, SELECT_ACTIVE, SELECT_DONE};
use crate::account::AccountId;
use crate::database::Timestamp;
use crate::task::stored::MAX_COUNTED_POSITION;
use crate::task::{NamedBlob, Statistics, Status, Task, TaskEvent, TaskId};

/// Returns the greatest id.
pub(super) async fn last_id(client: &Object) -> Result<Option<TaskId>, Fault> {
    let sql = "(SELECT id FROM task_active ORDER BY id DESC LIMIT 1) UNION ALL
        (SELECT id FROM task_done ORDER BY id DESC LIMIT 1) ORDER BY id DESC LIMIT 1";
    let row = client.query_opt(sql, &[]).await?;
    row.as_ref().map(rows::id).transpose()
}

/// Returns a task.
pub(super) async fn get(client: &Object, task: TaskId) -> Result<Option<Task>, Fault> {
    let sql = format!("{SELECT_ACTIVE} WHERE id = $1 UNION ALL {SELECT_DONE} WHERE id = $1");
    let read = client.prepare_cached(&sql).await?;
    let row = client.query_opt(&read, &[&task.uuid()]).await?;
    row.as_ref().map(rows::task).transpose()
}

/// Counts the waiting tasks of its account that come before a task.
pub(super) async fn place(client: &Object, task: TaskId) -> Result<Option<u64>, Fault> {
    let sql = "SELECT (SELECT count(*) FROM (
            SELECT FROM task_active AS other
            WHERE other.caller = own.caller AND other.node IS NULL AND other.id < own.id LIMIT $2
        ) AS before)
        FROM task_active AS own WHERE own.id = $1 AND own.node IS NULL";
    let read = client.prepare_cached(sql).await?;
    let values: &[&(dyn ToSql + Sync)] = &[&task.uuid(), &MAX_COUNTED_POSITION];
    let row = client.query_opt(&read, values).await?;
    row.as_ref().map(|row| rows::number(row, 0)).transpose()
}

/// Lists an account's tasks, newest first.
pub(super) async fn list(
    client: &Object,
    caller: AccountId,
    status: Option<Status>,
    before: Option<TaskId>,
    max: usize,
) -> Result<Vec<Task>, Fault> {
    let page = "caller = $1 AND id < $2";
    let of_active =
        |which: &str| format!("({SELECT_ACTIVE} WHERE {page} {which} ORDER BY id DESC LIMIT $3)");
    let of_done =
        |which: &str| format!("({SELECT_DONE} WHERE {page} {which} ORDER BY id DESC LIMIT $3)");
    let sql = match status {
        None => format!(
            "{} UNION ALL {} ORDER BY id DESC LIMIT $3",
            of_active(""),
            of_done("")
        ),
        Some(Status::Queued) => of_active("AND node IS NULL"),
        Some(Status::Processing) => of_active("AND node IS NOT NULL"),
        Some(Status::Completed) => of_done("AND outcome < 3"),
        Some(Status::Canceled) => of_done("AND outcome >= 3"),
    };
    let before = before.map_or(Uuid::max(), TaskId::uuid);
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let read = client.prepare_cached(&sql).await?;
    let found = client.query(&read, &[&caller.0, &before, &max]).await?;
    found.iter().map(rows::task).collect()
}

/// Returns those of the tasks that ended.
pub(super) async fn ended(client: &Object, tasks: &[TaskId]) -> Result<Vec<TaskEvent>, Fault> {
    // A task that is nowhere ended and was deleted.
    let sql = "SELECT wanted.id, outcome FROM unnest($1::UUID[]) AS wanted (id)
        LEFT JOIN task_active ON task_active.id = wanted.id
        LEFT JOIN task_done ON task_done.id = wanted.id WHERE task_active.id IS NULL";
    let ids: Vec<Uuid> = tasks.iter().map(|task| task.uuid()).collect();
    let read = client.prepare_cached(sql).await?;
    let found = client.query(&read, &[&ids]).await?;
    let event = |row: &Row| {
        let outcome: Option<i64> = row.try_get(1)?;
        Ok(TaskEvent {
            task: rows::id(row)?,
            status: outcome.map_or(Status::Canceled, rows::status_of),
        })
    };
    found.iter().map(event).collect()
}

/// Counts the waiting tasks of an account.
pub(super) async fn waiting(client: &Object, account: AccountId) -> Result<u64, Fault> {
    count(client, "waiting", account).await
}

/// Returns the bytes that an account's tasks use.
pub(super) async fn stored(client: &Object, account: AccountId) -> Result<u64, Fault> {
    count(client, "bytes", account).await
}

async fn count(client: &Object, column: &str, account: AccountId) -> Result<u64, Fault> {
    let sql = format!("SELECT {column} FROM account_load WHERE account = $1");
    let read = client.prepare_cached(&sql).await?;
    let row = client.query_opt(&read, &[&account.0]).await?;
    row.map_or(Ok(0), |row| rows::number(&row, 0))
}

/// Returns whether a task of the account has an idempotency key.
pub(super) async fn has_idempotency_key(
    client: &Object,
    account: AccountId,
    key: &str,
) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM task_repeat WHERE caller = $1 AND key = $2";
    let read = client.prepare_cached(sql).await?;
    let found = client.query_opt(&read, &[&account.0, &key]).await?;
    Ok(found.is_some())
}

/// Returns the numbers of waiting and running tasks.
pub(super) async fn load(client: &Object) -> Result<(u64, u64), Fault> {
    let sql = "SELECT sum(waiting)::BIGINT, sum(running)::BIGINT FROM account_load";
    let read = client.prepare_cached(sql).await?;
    let row = client.query_one(&read, &[]).await?;
    Ok((rows::number(&row, 0)?, rows::number(&row, 1)?))
}

/// Returns the acceptance time of the waiting task with the least id.
pub(super) async fn oldest_waiting(client: &Object) -> Result<Option<Timestamp>, Fault> {
    let sql = "SELECT created_at FROM task_active WHERE node IS NULL ORDER BY id LIMIT 1";
    let read = client.prepare_cached(sql).await?;
    let row = client.query_opt(&read, &[]).await?;
    row.map(|row| row.try_get(0).map(Timestamp)).transpose()
}

/// Lists the blobs that tasks need.
pub(super) async fn blobs(
    client: &Object,
    after: Option<TaskId>,
    max: usize,
) -> Result<Vec<NamedBlob>, Fault> {
    let sql = "(SELECT id, attempt, body_size, body_sha256, TRUE FROM task_active
            WHERE id > $1 AND body_sha256 IS NOT NULL ORDER BY id LIMIT $2)
        UNION ALL (SELECT id, attempt, answer_size, answer_sha256, FALSE FROM task_done
            WHERE id > $1 AND answer_sha256 IS NOT NULL ORDER BY id LIMIT $2)
        ORDER BY id LIMIT $2";
    let after = after.map_or(Uuid::nil(), TaskId::uuid);
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let found = client.query(sql, &[&after, &max]).await?;
    let blob = |row: &Row| {
        let lease = rows::lease(row)?;
        let is_body: bool = row.try_get(4)?;
        Ok(NamedBlob {
            task: lease.task,
            attempt: (!is_body).then_some(lease.attempt),
            size: rows::number(row, 2)?,
            sha256: rows::checksum(row, 3)?,
        })
    };
    found.iter().map(blob).collect()
}

/// Returns statistics of the stored tasks.
pub(super) async fn statistics(client: &Object) -> Result<Statistics, Fault> {
    // A single statement reads a consistent snapshot.
    let sql = "SELECT sum(waiting)::BIGINT, sum(running)::BIGINT, sum(tasks)::BIGINT,
        (SELECT count(*) FROM task_done WHERE outcome >= 3),
        (SELECT created_at FROM (
            (SELECT id, created_at FROM task_active ORDER BY id LIMIT 1) UNION ALL
            (SELECT id, created_at FROM task_done ORDER BY id LIMIT 1)
        ) AS first ORDER BY id LIMIT 1)
        FROM account_load";
    let row = client.query_one(sql, &[]).await?;
    let (waiting, running) = (rows::number(&row, 0)?, rows::number(&row, 1)?);
    let (all, canceled) = (rows::number(&row, 2)?, rows::number(&row, 3)?);
    Ok(Statistics {
        waiting,
        running,
        completed: all.saturating_sub(waiting + running + canceled),
        canceled,
        oldest: row.try_get::<_, Option<i64>>(4)?.map(Timestamp),
    })
}

/// Returns the accounts whose counts differ from their tasks.
pub(super) async fn miscounted(client: &Object) -> Result<Vec<i64>, Fault> {
    let sql = "SELECT coalesce(account, caller) FROM account_load FULL JOIN (
            SELECT caller, count(*) FILTER (WHERE node IS NULL) AS waiting,
                count(*) FILTER (WHERE node IS NOT NULL) AS running
            FROM task_active GROUP BY caller
        ) AS counted ON account = caller
        WHERE coalesce(account_load.waiting, 0) <> coalesce(counted.waiting, 0)
            OR coalesce(account_load.running, 0) <> coalesce(counted.running, 0)";
    let found = client.query(sql, &[]).await?;
    found.iter().map(|row| row.try_get(0)).collect()
}
