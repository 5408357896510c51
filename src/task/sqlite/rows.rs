//! Rows of the table of tasks, read.

use rusqlite::Row;

use crate::account::AccountId;
use crate::database::Timestamp;
use crate::task::{Claimed, Content, Failure, Lease, OnCrash, Outcome, Status, Task, TaskId};

/// The columns that [`task`] reads.
pub(super) const TASK: &str =
    "id, caller, owner, service, status, created_at, completed_at, attempt,
    outcome, answer, answer_size, answer_sha256, expires_at,
    failure_status, failure_code, failure_message";

/// The columns that [`claimed`] reads.
pub(super) const CLAIMED: &str =
    "id, attempt, caller, owner, service, body, body_size, body_sha256,
    config, data_type, retries";

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
        })),
        Some(_) => Some(Outcome::Answer {
            content: content(row, 9)?,
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

/// Bytes in the column `first`, or their size and checksum in the two after it.
fn content(row: &Row<'_>, first: usize) -> Result<Content, rusqlite::Error> {
    if let Some(bytes) = row.get(first)? {
        return Ok(Content::Inline(bytes));
    }
    let size: i64 = row.get(first + 1)?;
    Ok(Content::Blob {
        size: u64::try_from(size).unwrap_or(0),
        sha256: row.get(first + 2)?,
    })
}

/// The three columns of some content.
pub(super) fn columns(content: &Content) -> (Option<&[u8]>, Option<i64>, Option<&[u8]>) {
    match content {
        Content::Inline(bytes) => (Some(bytes), None, None),
        Content::Blob { size, sha256 } => {
            let size = i64::try_from(*size).unwrap_or(i64::MAX);
            (None, Some(size), Some(sha256))
        }
    }
}
