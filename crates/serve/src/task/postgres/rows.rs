//! Rows of tasks.

use std::borrow::Cow;

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use crate::account::AccountId;
use crate::database::Timestamp;
use crate::task::stored::{ANSWERED, CANCELED_BY_USER, EXPIRED, FAILED};
use crate::task::{
    ClaimedTask, Lease, OnCrash, Status, StoredContent, Task, TaskFailure, TaskId, TaskOutcome,
};

/// A fault of the database's client.
pub(super) type Fault = tokio_postgres::Error;

/// Returns whether PostgreSQL refused a statement only because one before it in the transaction failed. Of statements that
/// were sent at once, the other one's fault is the cause.
pub(super) fn is_aftermath(fault: &Fault) -> bool {
    fault.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
}

/// Selects the columns that [`task`] reads from the tasks that wait or run.
pub(super) const SELECT_ACTIVE: &str = "SELECT id, caller, owner, service, created_at, attempt, node IS NOT NULL,
    CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BYTEA), CAST(NULL AS BIGINT), CAST(NULL AS BYTEA),
    CAST(NULL AS BIGINT), CAST(NULL AS TEXT), CAST(NULL AS TEXT), CAST(NULL AS BIGINT), CAST(NULL AS TEXT),
    CAST(NULL AS TEXT) FROM task_active";

/// Selects the same columns from the tasks that ended.
pub(super) const SELECT_DONE: &str =
    "SELECT id, caller, owner, service, created_at, attempt, FALSE,
    completed_at, outcome, answer, answer_size, answer_sha256,
    expires_at, media_type, worker, failure_status, failure_code,
    failure_message FROM task_done";

/// The columns that [`claimed`] reads.
pub(super) const CLAIMED_COLUMNS: &str =
    "id, attempt, caller, owner, service, body, body_size, body_sha256, config, data_type, retries";

/// Reads a task.
pub(super) fn task(row: &Row) -> Result<Task, Fault> {
    let attempt = number(row, 5)?;
    let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
    let outcome: Option<i64> = row.try_get(8)?;
    let status = match outcome {
        None if row.try_get(6)? => Status::Processing,
        None => Status::Queued,
        Some(outcome) => status_of(outcome),
    };
    let outcome = match outcome {
        None => None,
        Some(EXPIRED) => Some(TaskOutcome::Expired),
        Some(CANCELED_BY_USER) => Some(TaskOutcome::CanceledByUser),
        Some(FAILED) => Some(TaskOutcome::Failed(failure(row)?)),
        Some(_) => Some(TaskOutcome::Answer {
            content: content(row, 9)?,
            media_type: row.try_get(13)?,
            worker: row.try_get(14)?,
            attempt,
            expires_at: row.try_get::<_, Option<i64>>(12)?.map(Timestamp),
        }),
    };
    Ok(Task {
        id: id(row)?,
        caller: AccountId(row.try_get(1)?),
        owner: AccountId(row.try_get(2)?),
        service: row.try_get(3)?,
        status,
        created_at: Timestamp(row.try_get(4)?),
        completed_at: row.try_get::<_, Option<i64>>(7)?.map(Timestamp),
        attempt,
        outcome,
    })
}

fn failure(row: &Row) -> Result<TaskFailure, Fault> {
    Ok(TaskFailure {
        status: u16::try_from(number(row, 15)?).unwrap_or(500),
        code: row.try_get(16)?,
        message: row.try_get(17)?,
        body: row.try_get(9)?,
        media_type: row.try_get(13)?,
        worker: row.try_get(14)?,
    })
}

/// Reads a task that was just claimed.
pub(super) fn claimed(row: &Row) -> Result<ClaimedTask, Fault> {
    Ok(ClaimedTask {
        lease: lease(row)?,
        caller: AccountId(row.try_get(2)?),
        owner: AccountId(row.try_get(3)?),
        service: row.try_get(4)?,
        body: content(row, 5)?,
        config: row.try_get(8)?,
        data_type: row.try_get(9)?,
        on_crash: if row.try_get(10)? {
            OnCrash::Retry
        } else {
            OnCrash::Fail
        },
    })
}

/// Reads the id in the first column.
pub(super) fn id(row: &Row) -> Result<TaskId, Fault> {
    row.try_get(0).map(TaskId::from_uuid)
}

/// Reads a lease from the first two columns: the id and the attempt.
pub(super) fn lease(row: &Row) -> Result<Lease, Fault> {
    Ok(Lease {
        task: id(row)?,
        attempt: u32::try_from(number(row, 1)?).unwrap_or(u32::MAX),
    })
}

/// Reads a number that is not negative; NULL becomes 0.
pub(super) fn number(row: &Row, column: usize) -> Result<u64, Fault> {
    let number: Option<i64> = row.try_get(column)?;
    Ok(number.map_or(0, |number| u64::try_from(number).unwrap_or(0)))
}

/// Returns the state of a task that ended.
pub(super) fn status_of(outcome: i64) -> Status {
    match outcome {
        ANSWERED | EXPIRED => Status::Completed,
        _ => Status::Canceled,
    }
}

/// Reads content from three columns: the bytes at `first`, or their size and checksum.
fn content(row: &Row, first: usize) -> Result<StoredContent, Fault> {
    if let Some(bytes) = row.try_get(first)? {
        return Ok(StoredContent::Inline(bytes));
    }
    Ok(StoredContent::Blob {
        size: number(row, first + 1)?,
        sha256: checksum(row, first + 2)?,
    })
}

/// Reads a checksum; one that is missing or damaged fits no content.
pub(super) fn checksum(row: &Row, column: usize) -> Result<[u8; 32], Fault> {
    let bytes: Option<Vec<u8>> = row.try_get(column)?;
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    Ok(bytes.unwrap_or_default())
}

/// Returns a number as the database stores it.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a text that PostgreSQL can store: it has no zero bytes.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}
