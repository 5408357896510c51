//! Rows to store, column by column: one statement stores those of a whole group.

use deadpool_postgres::Transaction;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::changes::EndingKind;
use super::rows::{Fault, signed, storable};
use crate::database::Timestamp;
use crate::task::{NewTask, OnCrash, StoredContent, TaskId};

/// Content in the columns of a table.
#[derive(Debug, Default)]
struct ContentColumns {
    inline: Vec<Option<Vec<u8>>>,
    size: Vec<Option<i64>>,
    sha256: Vec<Option<Vec<u8>>>,
}

/// Tasks to insert, and their idempotency keys.
#[derive(Debug, Default)]
pub(super) struct NewRows {
    id: Vec<Uuid>,
    caller: Vec<i64>,
    owner: Vec<i64>,
    service: Vec<String>,
    created_at: Vec<i64>,
    retries: Vec<bool>,
    config: Vec<Option<String>>,
    data_type: Vec<Option<String>>,
    body: ContentColumns,
    bytes: Vec<i64>,
    repeat_caller: Vec<i64>,
    repeat_key: Vec<String>,
    repeat_sha256: Vec<Vec<u8>>,
    repeat_task: Vec<Uuid>,
}

/// Tasks that end.
#[derive(Debug, Default)]
pub(super) struct EndedRows {
    id: Vec<Uuid>,
    completed_at: Vec<i64>,
    outcome: Vec<i64>,
    answer: ContentColumns,
    expires_at: Vec<Option<i64>>,
    media_type: Vec<Option<String>>,
    worker: Vec<Option<String>>,
    failure_status: Vec<Option<i64>>,
    failure_code: Vec<Option<String>>,
    failure_message: Vec<Option<String>>,
}

impl ContentColumns {
    fn push(&mut self, content: Option<&StoredContent>) {
        let (inline, blob) = match content {
            None => (None, None),
            Some(StoredContent::Inline(bytes)) => (Some(bytes.clone()), None),
            Some(StoredContent::Blob { size, sha256 }) => (None, Some((*size, sha256.to_vec()))),
        };
        self.inline.push(inline);
        self.size.push(blob.as_ref().map(|(size, _)| signed(*size)));
        self.sha256.push(blob.map(|(_, sha256)| sha256));
    }
}

impl NewRows {
    /// Adds a task.
    pub(super) fn push(&mut self, task: &NewTask, now: Timestamp) {
        let text = |text: &Option<String>| text.as_deref().map(|it| storable(it).into_owned());
        self.id.push(task.id.uuid());
        self.caller.push(task.caller.0);
        self.owner.push(task.owner.0);
        self.service.push(task.service.clone());
        self.created_at.push(now.0);
        self.retries.push(task.on_crash == OnCrash::Retry);
        self.config.push(text(&task.config));
        self.data_type.push(text(&task.data_type));
        self.body.push(Some(&task.body));
        self.bytes.push(signed(task.bytes()));
        if let Some(repeat) = &task.idempotency {
            self.repeat_caller.push(task.caller.0);
            self.repeat_key.push(repeat.key.clone());
            self.repeat_sha256.push(repeat.fingerprint.to_vec());
            self.repeat_task.push(task.id.uuid());
        }
    }

    /// Inserts the tasks and their keys.
    pub(super) async fn store(&self, transaction: &Transaction<'_>) -> Result<u64, Fault> {
        if self.id.is_empty() {
            return Ok(0);
        }
        let sql =
            "INSERT INTO task_active (id, caller, owner, service, created_at, retries, config,
                data_type, body, body_size, body_sha256, bytes)
            SELECT * FROM unnest($1::UUID[], $2::BIGINT[], $3::BIGINT[], $4::TEXT[], $5::BIGINT[],
                $6::BOOLEAN[], $7::TEXT[], $8::TEXT[], $9::BYTEA[], $10::BIGINT[], $11::BYTEA[],
                $12::BIGINT[])";
        let values: &[&(dyn ToSql + Sync)] = &[
            &self.id,
            &self.caller,
            &self.owner,
            &self.service,
            &self.created_at,
            &self.retries,
            &self.config,
            &self.data_type,
            &self.body.inline,
            &self.body.size,
            &self.body.sha256,
            &self.bytes,
        ];
        let insert = transaction.prepare_cached(sql).await?;
        let inserted = transaction.execute(&insert, values).await?;
        if !self.repeat_key.is_empty() {
            let sql = "INSERT INTO task_repeat (caller, key, sha256, task)
                SELECT * FROM unnest($1::BIGINT[], $2::TEXT[], $3::BYTEA[], $4::UUID[])";
            let values: &[&(dyn ToSql + Sync)] = &[
                &self.repeat_caller,
                &self.repeat_key,
                &self.repeat_sha256,
                &self.repeat_task,
            ];
            let insert = transaction.prepare_cached(sql).await?;
            transaction.execute(&insert, values).await?;
        }
        Ok(inserted)
    }
}

impl EndedRows {
    /// Adds a task. Returns the bytes that its answer, or the body of its failure, counts.
    pub(super) fn push(
        &mut self,
        task: TaskId,
        (outcome, now): (i64, Timestamp),
        how: &EndingKind,
    ) -> u64 {
        self.id.push(task.uuid());
        self.completed_at.push(now.0);
        self.outcome.push(outcome);
        let answer = match how {
            EndingKind::Answer(answer, expires_at) => {
                let expires = answer.content.expires().then_some(expires_at.0);
                self.expires_at.push(expires);
                self.media_type.push(answer.media_type.clone());
                self.worker.push(answer.worker.clone());
                Some(answer.content.clone())
            }
            EndingKind::Failure(failure) => {
                self.expires_at.push(None);
                self.media_type.push(failure.media_type.clone());
                self.worker.push(failure.worker.clone());
                failure.body.clone().map(StoredContent::Inline)
            }
            EndingKind::ByUser | EndingKind::PutBack { .. } => {
                self.expires_at.push(None);
                self.media_type.push(None);
                self.worker.push(None);
                None
            }
        };
        let failure = match how {
            EndingKind::Failure(failure) => Some(failure),
            _ => None,
        };
        self.failure_status
            .push(failure.map(|it| i64::from(it.status)));
        self.failure_code.push(failure.map(|it| it.code.clone()));
        self.failure_message
            .push(failure.map(|it| storable(&it.message).into_owned()));
        self.answer.push(answer.as_ref());
        answer.map_or(0, |answer| answer.size())
    }

    /// Moves the tasks to those that ended.
    pub(super) async fn store(&self, transaction: &Transaction<'_>) -> Result<u64, Fault> {
        if self.id.is_empty() {
            return Ok(0);
        }
        let sql = "WITH ending AS (
                SELECT * FROM unnest($1::UUID[], $2::BIGINT[], $3::BIGINT[], $4::BYTEA[], $5::BIGINT[],
                    $6::BYTEA[], $7::BIGINT[], $8::TEXT[], $9::TEXT[], $10::BIGINT[], $11::TEXT[],
                    $12::TEXT[])
                AS end_of (id, completed_at, outcome, answer, answer_size, answer_sha256, expires_at,
                    media_type, worker, failure_status, failure_code, failure_message)
            ), gone AS (
                DELETE FROM task_active USING ending WHERE task_active.id = ending.id
                RETURNING task_active.id, caller, owner, service, created_at, attempt
            )
            INSERT INTO task_done (id, caller, owner, service, created_at, completed_at, attempt, outcome,
                answer, answer_size, answer_sha256, expires_at, media_type, worker, failure_status,
                failure_code, failure_message)
            SELECT id, caller, owner, service, created_at, greatest(created_at, completed_at), attempt,
                outcome, answer, answer_size, answer_sha256, expires_at, media_type, worker,
                failure_status, failure_code, failure_message
            FROM gone JOIN ending USING (id)";
        let values: &[&(dyn ToSql + Sync)] = &[
            &self.id,
            &self.completed_at,
            &self.outcome,
            &self.answer.inline,
            &self.answer.size,
            &self.answer.sha256,
            &self.expires_at,
            &self.media_type,
            &self.worker,
            &self.failure_status,
            &self.failure_code,
            &self.failure_message,
        ];
        let end = transaction.prepare_cached(sql).await?;
        transaction.execute(&end, values).await
    }
}
