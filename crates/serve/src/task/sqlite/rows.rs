//! Conversion of rows of the `task` table.

use rusqlite::Row;

use crate::account::AccountId;
use crate::database::Timestamp;
use crate::task::stored::{CANCELED_BY_USER, EXPIRED, FAILED};
use crate::task::{
    ClaimedTask, Lease, OnCrash, Status, StoredContent, Task, TaskFailure, TaskId, TaskOutcome,
};

/// The columns that [`task`] reads.
pub(super) const TASK_COLUMNS: &str =
    "id, caller, owner, service, status, created_at, completed_at, attempt,
    outcome, coalesce(answer, (SELECT bytes FROM content WHERE number = answer_number)),
    answer_size, answer_sha256, expires_at, failure_status, failure_code, failure_message,
    media_type, worker";

/// The columns that [`claimed`] reads, and the row number of the body.
pub(super) const CLAIMED_COLUMNS: &str =
    "id, attempt, caller, owner, service, body, body_size, body_sha256,
    config, data_type, retries, body_number";

/// Stored values of states.
pub(super) const WAITING: i64 = 0;
pub(super) const RUNNING: i64 = 1;
pub(super) const COMPLETED: i64 = 2;
pub(super) const CANCELED: i64 = 3;

/// Reads a task.
pub(super) fn task(row: &Row<'_>) -> rusqlite::Result<Task> {
    let attempt = row.get(7)?;
    let outcome = match row.get::<_, Option<i64>>(8)? {
        None => None,
        Some(EXPIRED) => Some(TaskOutcome::Expired),
        Some(CANCELED_BY_USER) => Some(TaskOutcome::CanceledByUser),
        Some(FAILED) => Some(TaskOutcome::Failed(TaskFailure {
            status: row.get(13)?,
            code: row.get(14)?,
            message: row.get(15)?,
            body: row.get(9)?,
            media_type: row.get(16)?,
            worker: row.get(17)?,
        })),
        Some(_) => Some(TaskOutcome::Answer {
            content: content(row, 9)?,
            media_type: row.get(16)?,
            worker: row.get(17)?,
            attempt,
            expires_at: row.get::<_, Option<i64>>(12)?.map(Timestamp),
        }),
    };
    Ok(Task {
        id: TaskId::from_bytes(row.get(0)?),
        caller: AccountId(row.get(1)?),
        owner: AccountId(row.get(2)?),
        service: row.get(3)?,
        status: match row.get(4)? {
            WAITING => Status::Queued,
            RUNNING => Status::Processing,
            COMPLETED => Status::Completed,
            _ => Status::Canceled,
        },
        created_at: Timestamp(row.get(5)?),
        completed_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
        attempt,
        outcome,
    })
}

/// Reads a task that was just claimed.
pub(super) fn claimed(row: &Row<'_>) -> rusqlite::Result<ClaimedTask> {
    Ok(ClaimedTask {
        lease: Lease {
            task: TaskId::from_bytes(row.get(0)?),
            attempt: row.get(1)?,
        },
        caller: AccountId(row.get(2)?),
        owner: AccountId(row.get(3)?),
        service: row.get(4)?,
        body: content(row, 5)?,
        config: row.get(8)?,
        data_type: row.get(9)?,
        on_crash: if row.get(10)? {
            OnCrash::Retry
        } else {
            OnCrash::Fail
        },
    })
}

/// Resources that the end of a task frees. The row number of its body stays in the row but is
/// meaningless afterwards.
pub(super) struct FreedResources {
    pub(super) caller: AccountId,
    /// Row number of its body in the `content` table.
    pub(super) body_number: Option<i64>,
    /// Bytes of its body and config.
    pub(super) request_bytes: u64,
}

/// Reads a task that just ended.
pub(super) fn ended(row: &Row<'_>) -> rusqlite::Result<FreedResources> {
    Ok(FreedResources {
        caller: AccountId(row.get(0)?),
        body_number: row.get(1)?,
        request_bytes: number(row, 2)?,
    })
}

/// Reads a non-negative number; NULL becomes 0.
pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number = row.get::<_, Option<i64>>(column)?;
    Ok(number.map_or(0, |number| u64::try_from(number).unwrap_or(0)))
}

/// Reads content from three columns: the bytes at `first`, or their size and checksum. Missing
/// bytes are treated as a lost blob, so that only this task is affected.
fn content(row: &Row<'_>, first: usize) -> rusqlite::Result<StoredContent> {
    if let Some(bytes) = row.get(first)? {
        return Ok(StoredContent::Inline(bytes));
    }
    let size: i64 = row.get(first + 1)?;
    Ok(StoredContent::Blob {
        size: u64::try_from(size).unwrap_or(0),
        sha256: row.get::<_, Option<_>>(first + 2)?.unwrap_or_default(),
    })
}
