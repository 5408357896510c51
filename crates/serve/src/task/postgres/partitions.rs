//! The partitions of tasks that ended: one for each day of acceptance.
//!
//! Invariant: a partition is dropped when all its tasks may be deleted and none of their answers is a blob. Tasks of
//! days without a partition are in the default one.

use deadpool_postgres::Transaction;
use uuid::Uuid;

use super::rows::{self, Fault};
use crate::database::{Day, Timestamp};
use crate::task::RemovedTasks;

/// Partitions are made for so many days ahead.
const DAYS_AHEAD: u32 = 2;

/// Number of the lock of whoever makes or drops partitions: the letters `pkgdays`.
const LOCK: i64 = 0x70_6b67_6461_7973;

/// The beginning of the names of partitions.
const NAME: &str = "task_done_d";

/// Makes the partitions of today and of the next days.
pub(super) async fn make(transaction: &Transaction<'_>, now: Timestamp) -> Result<(), Fault> {
    let today = now.day();
    let last = partition_name(today.after(DAYS_AHEAD));
    if exists(transaction, &last).await? {
        return Ok(());
    }
    lock(transaction).await?;
    for ahead in 0..=DAYS_AHEAD {
        let day = today.after(ahead);
        let name = partition_name(day);
        if exists(transaction, &name).await? {
            continue;
        }
        let (from, to) = (first_id(day), first_id(day.after(1)));
        // The database's clock was ahead, and tasks of that day came to the default partition: the day keeps to it.
        let sql = "SELECT EXISTS (SELECT FROM task_done_other WHERE id >= $1 AND id < $2)";
        if transaction
            .query_one(sql, &[&from, &to])
            .await?
            .try_get(0)?
        {
            continue;
        }
        let sql = format!(
            "CREATE TABLE {name} PARTITION OF task_done FOR VALUES FROM ('{from}') TO ('{to}')"
        );
        transaction.batch_execute(&sql).await?;
    }
    Ok(())
}

/// Drops the oldest partition if all its tasks ended at or before a time, and no answer is a blob.
pub(super) async fn drop_oldest(
    transaction: &Transaction<'_>,
    ended_by: Timestamp,
) -> Result<Option<RemovedTasks>, Fault> {
    let sql = "SELECT relname::TEXT FROM pg_inherits JOIN pg_class ON oid = inhrelid
        WHERE inhparent = 'task_done'::regclass AND starts_with(relname::TEXT, $1) ORDER BY relname LIMIT 1";
    let Some(oldest) = transaction.query_opt(sql, &[&NAME]).await? else {
        return Ok(None);
    };
    let name: String = oldest.try_get(0)?;
    // Tasks of its last day may still be accepted, or run.
    if name >= partition_name(ended_by.day()) {
        return Ok(None);
    }
    let sql = format!(
        "SELECT EXISTS (SELECT FROM {name} WHERE completed_at > $1)
            OR EXISTS (SELECT FROM {name} WHERE answer_sha256 IS NOT NULL)"
    );
    if transaction
        .query_one(&sql, &[&ended_by.0])
        .await?
        .try_get(0)?
    {
        return Ok(None);
    }
    lock(transaction).await?;
    // A task that ends now waits, and then goes to the default partition.
    let detach = format!("LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE");
    transaction.batch_execute(&detach).await?;
    if transaction
        .query_one(&sql, &[&ended_by.0])
        .await?
        .try_get(0)?
    {
        return Ok(None);
    }
    let free = format!(
        "WITH gone AS (
            SELECT caller, count(*) AS tasks, coalesce(sum(length(answer)), 0)::BIGINT AS bytes
            FROM {name} GROUP BY caller ORDER BY caller
        ), held AS (
            SELECT account FROM account_load JOIN gone ON account = caller ORDER BY account FOR UPDATE OF account_load
        )
        UPDATE account_load AS known
        SET tasks = greatest(known.tasks - gone.tasks, 0), bytes = greatest(known.bytes - gone.bytes, 0)
        FROM gone JOIN held ON account = caller WHERE known.account = gone.caller RETURNING gone.tasks"
    );
    let freed = transaction.query(&free, &[]).await?;
    let counts = freed.iter().map(|row| rows::number(row, 0));
    let count = counts.sum::<Result<u64, Fault>>()?;
    let drop = format!(
        "DELETE FROM task_repeat USING {name} WHERE task_repeat.task = {name}.id; DROP TABLE {name}"
    );
    transaction.batch_execute(&drop).await?;
    Ok(Some(RemovedTasks {
        count: usize::try_from(count).unwrap_or(usize::MAX),
        blobs: Vec::new(),
    }))
}

async fn exists(transaction: &Transaction<'_>, name: &str) -> Result<bool, Fault> {
    let sql = "SELECT to_regclass($1) IS NOT NULL";
    transaction.query_one(sql, &[&name]).await?.try_get(0)
}

async fn lock(transaction: &Transaction<'_>) -> Result<(), Fault> {
    let lock = format!("SELECT pg_advisory_xact_lock({LOCK})");
    transaction.batch_execute(&lock).await
}

fn partition_name(day: Day) -> String {
    // The names sort like the days for some thousand years.
    format!("{NAME}{:07}", day.0)
}

/// Returns the least id of a day.
fn first_id(day: Day) -> Uuid {
    let millis = u64::try_from(day.0).unwrap_or(0) * 24 * 3600 * 1000;
    Uuid::from_u128(u128::from(millis) << 80)
}
