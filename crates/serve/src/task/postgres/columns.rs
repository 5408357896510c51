//! Rows to store, column by column: one statement stores those of a whole group.

use std::borrow::Cow;

use deadpool_postgres::Transaction;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::changes::EndingKind;
use super::rows::{Fault, signed, storable};
use crate::database::Timestamp;
use crate::task::{NewTask, OnCrash, StoredContent, TaskId};

/// Content in the columns of a table.
#[derive(Debug, Default)]
struct ContentColumns<'g> {
    inline: Vec<Option<&'g [u8]>>,
    size: Vec<Option<i64>>,
    sha256: Vec<Option<&'g [u8]>>,
}

/// Tasks to insert, and their idempotency keys.
#[derive(Debug, Default)]
pub(super) struct NewRows<'g> {
    id: Vec<Uuid>,
    caller: Vec<i64>,
    owner: Vec<i64>,
    service: Vec<&'g str>,
    created_at: Vec<i64>,
    retries: Vec<bool>,
    config: Vec<Option<Cow<'g, str>>>,
    data_type: Vec<Option<Cow<'g, str>>>,
    body: ContentColumns<'g>,
    bytes: Vec<i64>,
    repeat_caller: Vec<i64>,
    repeat_key: Vec<&'g str>,
    repeat_sha256: Vec<&'g [u8]>,
    repeat_task: Vec<Uuid>,
}

/// Tasks that end.
#[derive(Debug, Default)]
pub(super) struct EndedRows<'g> {
    id: Vec<Uuid>,
    completed_at: Vec<i64>,
    outcome: Vec<i64>,
    answer: ContentColumns<'g>,
    expires_at: Vec<Option<i64>>,
    media_type: Vec<Option<&'g str>>,
    worker: Vec<Option<&'g str>>,
    failure_status: Vec<Option<i64>>,
    failure_code: Vec<Option<&'g str>>,
    failure_message: Vec<Option<Cow<'g, str>>>,
}

impl<'g> ContentColumns<'g> {
    fn push(&mut self, content: &'g StoredContent) {
        match content {
            StoredContent::Inline(bytes) => self.push_bytes(Some(bytes)),
            StoredContent::Blob { size, sha256 } => {
                self.inline.push(None);
                self.size.push(Some(signed(*size)));
                self.sha256.push(Some(sha256));
            }
        }
    }

    /// Adds bytes in the record, or nothing.
    fn push_bytes(&mut self, bytes: Option<&'g [u8]>) {
        self.inline.push(bytes);
        self.size.push(None);
        self.sha256.push(None);
    }
}

impl<'g> NewRows<'g> {
    /// Adds a task.
    pub(super) fn push(&mut self, task: &'g NewTask, now: Timestamp) {
        let text = |text: &'g Option<String>| text.as_deref().map(storable);
        self.id.push(task.id.uuid());
        self.caller.push(task.caller.0);
        self.owner.push(task.owner.0);
        self.service.push(&task.service);
        self.created_at.push(now.0);
        self.retries.push(task.on_crash == OnCrash::Retry);
        self.config.push(text(&task.config));
        self.data_type.push(text(&task.data_type));
        self.body.push(&task.body);
        self.bytes.push(signed(task.bytes()));
        if let Some(repeat) = &task.idempotency {
            self.repeat_caller.push(task.caller.0);
            self.repeat_key.push(&repeat.key);
            self.repeat_sha256.push(&repeat.fingerprint);
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

impl<'g> EndedRows<'g> {
    /// Adds a task. Returns the bytes that its answer, or the body of its failure, counts.
    pub(super) fn push(
        &mut self,
        task: TaskId,
        (outcome, now): (i64, Timestamp),
        how: &'g EndingKind,
    ) -> u64 {
        self.id.push(task.uuid());
        self.completed_at.push(now.0);
        self.outcome.push(outcome);
        let (mut expires_at, mut failed) = (None, None);
        let (media_type, worker, bytes) = match how {
            EndingKind::Answer(answer, until) => {
                expires_at = answer.content.expires().then_some(until.0);
                self.answer.push(&answer.content);
                (&answer.media_type, &answer.worker, answer.content.size())
            }
            EndingKind::Failure(failure) => {
                failed = Some(failure);
                self.answer.push_bytes(failure.body.as_deref());
                let bytes = failure.body.as_ref().map_or(0, Vec::len);
                (&failure.media_type, &failure.worker, bytes as u64)
            }
            EndingKind::ByUser | EndingKind::PutBack { .. } => {
                self.answer.push_bytes(None);
                (&None, &None, 0)
            }
        };
        self.expires_at.push(expires_at);
        self.media_type.push(media_type.as_deref());
        self.worker.push(worker.as_deref());
        let status = failed.map(|failure| i64::from(failure.status));
        self.failure_status.push(status);
        let code = failed.map(|failure| failure.code.as_str());
        self.failure_code.push(code);
        let message = failed.map(|failure| storable(&failure.message));
        self.failure_message.push(message);
        bytes
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
