//! Rows of the table of tasks, read.

use rusqlite::Row;

use crate::account::AccountId;
use crate::database::Timestamp;
use crate::task::{Claimed, Content, Failure, Lease, OnCrash, Outcome, Status, Task, TaskId};

/// The columns that [`task`] reads.
pub(super) const TASK: &str =
    "id, caller, owner, service, status, created_at, completed_at, attempt,
    outcome, coalesce(answer, (SELECT bytes FROM content WHERE number = answer_number)),
    answer_size, answer_sha256, expires_at, failure_status, failure_code, failure_message,
    media_type";

/// The columns that [`claimed`] reads, and the number of the body.
pub(super) const CLAIMED: &str =
    "id, attempt, caller, owner, service, body, body_size, body_sha256,
    config, data_type, retries, body_number";

/// How states are stored.
pub(super) const WAITING: i64 = 0;
pub(super) const RUNNING: i64 = 1;
pub(super) const COMPLETED: i64 = 2;
pub(super) const CANCELED: i64 = 3;

/// How outcomes are stored.
pub(super) const ANSWERED: i64 = 1;
pub(super) const EXPIRED: i64 = 2;
pub(super) const FAILED: i64 = 3;
pub(super) const CANCELED_BY_USER: i64 = 4;

/// A task.
pub(super) fn task(row: &Row<'_>) -> Result<Task, rusqlite::Error> {
    let attempt = row.get(7)?;
    let outcome = match row.get::<_, Option<i64>>(8)? {
        None => None,
        Some(EXPIRED) => Some(Outcome::Expired),
        Some(CANCELED_BY_USER) => Some(Outcome::CanceledByUser),
        Some(FAILED) => Some(Outcome::Failed(Failure {
            status: row.get(13)?,
            code: row.get(14)?,
            message: row.get(15)?,
            body: row.get(9)?,
            media_type: row.get(16)?,
        })),
        Some(_) => Some(Outcome::Answer {
            content: content(row, 9)?,
            media_type: row.get(16)?,
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

/// A task that was just claimed.
pub(super) fn claimed(row: &Row<'_>) -> Result<Claimed, rusqlite::Error> {
    Ok(Claimed {
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

/// What the end of a task frees. The number of its body means nothing from then on, and stays.
pub(super) struct Ended {
    pub(super) caller: AccountId,
    /// The number of its body among the contents.
    pub(super) body_number: Option<i64>,
    /// What body and config took.
    pub(super) request_bytes: u64,
}

/// A task that just ended: its caller, the number of its body, what its request took.
pub(super) fn ended(row: &Row<'_>) -> Result<Ended, rusqlite::Error> {
    Ok(Ended {
        caller: AccountId(row.get(0)?),
        body_number: row.get(1)?,
        request_bytes: number(row, 2)?,
    })
}

/// A number that is never less than 0; 0 if there is none.
pub(super) fn number(row: &Row<'_>, column: usize) -> Result<u64, rusqlite::Error> {
    let number = row.get::<_, Option<i64>>(column)?;
    Ok(number.map_or(0, |number| u64::try_from(number).unwrap_or(0)))
}

/// Bytes in the column `first`, or their size and checksum in the two after it. Bytes that are missing
/// are taken for a blob that is lost: only the one task is harmed.
fn content(row: &Row<'_>, first: usize) -> Result<Content, rusqlite::Error> {
    if let Some(bytes) = row.get(first)? {
        return Ok(Content::Inline(bytes));
    }
    let size: i64 = row.get(first + 1)?;
    Ok(Content::Blob {
        size: u64::try_from(size).unwrap_or(0),
        sha256: row.get::<_, Option<_>>(first + 2)?.unwrap_or_default(),
    })
}
