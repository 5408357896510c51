//! Runs one claimed task: loads its body, calls its service and stores the outcome.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{QueueOptions, STORE_RETRY_DELAY};
use crate::account::AccountId;
use crate::database::{DatabaseResult, Timestamp};
use crate::service::meter::{AnswerOutcome, ServiceOperation};
use crate::service::{CallError, Request, Service};
use crate::task::{
    BlobError, ClaimedTask, Lease, OnCrash, StoredAnswer, StoredContent, TaskFailure, TaskId,
};

/// Longest pause between two attempts to store an outcome.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(30);

/// How long a task stays with its server while the device or worker for it is away.
const AWAY_PAUSE: Duration = Duration::from_secs(2);

/// Outcome of a run.
enum RunResult {
    Answered {
        answer: Bytes,
        media_type: Option<String>,
        worker: Option<String>,
    },
    Failed(TaskFailure),
    /// The process or the worker that ran it is gone. After so many attempts the task is canceled.
    Crashed(u32),
    /// The service stopped before it ran the task, which is not the task's fault.
    PutBack,
}

/// Runs a claimed task to its end.
pub(super) async fn run(options: Arc<QueueOptions>, claimed: ClaimedTask) {
    let lease = claimed.lease;
    let had_blob = matches!(claimed.body, StoredContent::Blob { .. });
    let end = answer(&options, claimed).await;
    // Aborting the run of a canceled task does not abort this step, which removes an answer that is
    // no longer needed.
    let stored = tokio::spawn(store(options, lease, end, had_blob)).await;
    if let Err(error) = stored {
        tracing::error!(task = %lease.task, %error, "the task's outcome was not stored");
    }
}

/// Stores the outcome of a run.
async fn store(options: Arc<QueueOptions>, lease: Lease, end: RunResult, had_blob: bool) {
    let finished = match end {
        RunResult::Answered {
            answer,
            media_type,
            worker,
        } => complete(&options, lease, answer, (media_type, worker)).await,
        RunResult::Failed(failure) => fail(&options, lease, failure).await,
        RunResult::Crashed(attempts) => {
            release(&options, lease, Some(attempts)).await;
            false
        }
        RunResult::PutBack => {
            release(&options, lease, None).await;
            false
        }
    };
    if finished && had_blob {
        options.blobs.delete_body(lease.task).await;
    }
}

async fn answer(options: &QueueOptions, claimed: ClaimedTask) -> RunResult {
    let task = claimed.lease.task;
    // A task has no deadline here: it waits until the body memory has room for its body.
    let size = usize::try_from(claimed.body.size()).unwrap_or(usize::MAX);
    let holding = options.memory.wait(claimed.caller, size).await;
    let loaded = options.blobs.load_body(task, &claimed.body, holding);
    let (body, memory) = match loaded.await {
        Ok(loaded) => loaded,
        Err(BlobError::Lost | BlobError::Corrupt) => {
            tracing::error!(%task, "the task's body is missing or corrupt");
            return RunResult::Failed(TaskFailure::body_lost());
        }
        Err(BlobError::Storage(error)) if options.blobs.bucket().is_some() => {
            tracing::error!(%task, %error, "cannot read the task's body; task returned to the queue");
            tokio::time::sleep(STORE_RETRY_DELAY).await;
            return RunResult::PutBack;
        }
        Err(BlobError::Storage(error)) => {
            tracing::error!(%task, %error, "cannot read the task's body");
            return RunResult::Failed(TaskFailure::body_lost());
        }
    };
    let Some(service) = (options.find)(claimed.owner, &claimed.service) else {
        let (owner, name) = (claimed.owner, &claimed.service);
        if options.absent.leaves(owner, name, task.made_at()) {
            tracing::debug!(%task, service = name, "left to a server that has the service");
            return RunResult::PutBack;
        }
        return RunResult::Failed(TaskFailure::no_service(&claimed.service));
    };
    let run = TaskRun {
        options,
        service: &service,
        task,
        caller: claimed.caller,
        began: Instant::now(),
        is_counted: false,
    };
    let request = Request {
        body,
        config: claimed.config,
        data_type: claimed.data_type,
        accept: None,
        memory: Some(memory),
        in_background: false,
    };
    let answer = async {
        let prepared = service.prepare(&request).await?;
        // While the request waits for the engine, only the tensors stay in memory.
        drop(request);
        let limit = service.settings.async_timeout();
        let answer = prepared.predict(claimed.caller, limit).await?;
        let media_type = StoredAnswer::media_type(&answer.content_type);
        let worker = answer.worker;
        let answer = answer.body.whole().await?;
        Ok(RunResult::Answered {
            answer,
            media_type,
            worker,
        })
    };
    let answer = answer.await;
    run.end(answer.as_ref().err());
    match answer {
        Ok(answered) => answered,
        Err(CallError::Stopped) => RunResult::PutBack,
        Err(CallError::Away(_)) => {
            // The last worker or device left after the claim, or the task needs a device that the other tasks of
            // its service do not need.
            let mut resumed = options.resumed.clone();
            resumed.mark_unchanged();
            let _ = tokio::time::timeout(AWAY_PAUSE, resumed.changed()).await;
            RunResult::PutBack
        }
        Err(error) if error.is_full() => {
            // The account's own requests fill the service's queue or the memory: the task returns to the task
            // queue.
            tracing::debug!(%task, %error, "task returned to the queue");
            tokio::time::sleep(STORE_RETRY_DELAY / 10).await;
            RunResult::PutBack
        }
        Err(error) => {
            let attempts = match error {
                CallError::Crashed(_) => Some(options.caps.attempts),
                CallError::Lost => Some(options.worker_attempts),
                _ => None,
            };
            if let Some(attempts) = attempts.filter(|_| claimed.on_crash == OnCrash::Retry) {
                return RunResult::Crashed(attempts);
            }
            RunResult::Failed(TaskFailure::of(error))
        }
    }
}

/// A run of a task, for the log and metrics. A run that is dropped before its end was abandoned,
/// most likely because its user canceled the task.
struct TaskRun<'r> {
    options: &'r QueueOptions,
    service: &'r Service,
    task: TaskId,
    caller: AccountId,
    began: Instant,
    is_counted: bool,
}

impl TaskRun<'_> {
    fn end(mut self, error: Option<&CallError>) {
        self.is_counted = true;
        let goes_back = |error: &CallError| match error {
            CallError::Stopped | CallError::Away(_) => true,
            other => other.is_full(),
        };
        if error.is_some_and(goes_back) {
            // The task returns to the queue and runs again.
            return;
        }
        let outcome = error.map_or(AnswerOutcome::Done, |error| {
            AnswerOutcome::of_status(TaskFailure::of(error.clone()).status)
        });
        let took = self.began.elapsed();
        let waited = Timestamp::now().before(took).0 - self.task.made_at().0;
        let waited = Duration::from_millis(u64::try_from(waited).unwrap_or(0));
        let meter = &self.service.meter;
        meter.task_waits.time(waited);
        meter.task_runs.time(took);
        self.count(outcome, took);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (task, service) = (self.task, self.service.label());
        let (waited_ms, took_ms) = (millis(waited), millis(took));
        let account = self.account();
        if let Some(error) = error {
            tracing::warn!(%task, account, %service, waited_ms, took_ms, %error, "task failed");
        } else {
            tracing::debug!(%task, account, %service, waited_ms, took_ms, "task completed");
        }
    }

    fn count(&self, outcome: AnswerOutcome, took: Duration) {
        let account = self.account();
        let whose = (self.caller, account.as_str());
        let meter = &self.service.meter;
        meter.count(whose, ServiceOperation::Task, outcome, took);
    }

    fn account(&self) -> String {
        let accounts = self.options.directory.snapshot();
        let account = accounts.by_id(self.caller);
        account.map_or_else(String::new, |account| account.name.clone())
    }
}

impl Drop for TaskRun<'_> {
    fn drop(&mut self) {
        if !self.is_counted {
            self.count(AnswerOutcome::Abandoned, self.began.elapsed());
        }
    }
}

/// Stores an answer. Returns whether this finished the task.
async fn complete(
    options: &QueueOptions,
    lease: Lease,
    answer: Bytes,
    (media_type, worker): (Option<String>, Option<String>),
) -> bool {
    let mut pause = RetryPause::default();
    let content = loop {
        match options.blobs.put_answer(lease, answer.clone()).await {
            Ok(content) => break content,
            Err(error) => {
                tracing::error!(task = %lease.task, %error, "cannot store the task's answer; retrying");
                pause.wait().await;
            }
        }
    };
    let in_blob = matches!(content, StoredContent::Blob { .. });
    let answer = StoredAnswer {
        content,
        media_type,
        worker,
    };
    let stored = retry_until_stored(lease, || {
        let now = Timestamp::now();
        let expires = now.after(options.answer_ttl);
        options.store.complete(lease, answer.clone(), now, expires)
    });
    let stored = stored.await;
    if !stored && in_blob {
        options.blobs.delete_answer(lease).await;
    }
    stored
}

async fn fail(options: &QueueOptions, lease: Lease, failure: TaskFailure) -> bool {
    retry_until_stored(lease, || {
        options.store.fail(lease, failure.clone(), Timestamp::now())
    })
    .await
}

async fn release(options: &QueueOptions, lease: Lease, crash: Option<u32>) {
    retry_until_stored(lease, || Box::pin(options.release(lease, crash))).await;
}

/// Retries until the store succeeds: a full disk must not lose an outcome.
async fn retry_until_stored<'a>(
    lease: Lease,
    mut attempt: impl FnMut() -> StoreFuture<'a>,
) -> bool {
    let mut pause = RetryPause::default();
    loop {
        match attempt().await {
            Ok(stored) => return stored,
            Err(error) => {
                tracing::error!(task = %lease.task, %error, "cannot store the task's outcome; retrying");
                pause.wait().await;
            }
        }
    }
}

/// Future that the store methods return.
type StoreFuture<'a> = Pin<Box<dyn Future<Output = DatabaseResult<bool>> + Send + 'a>>;

/// Pauses that double each time.
struct RetryPause(Duration);

impl Default for RetryPause {
    fn default() -> Self {
        Self(STORE_RETRY_DELAY / 10)
    }
}

impl RetryPause {
    async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(MAX_RETRY_PAUSE);
    }
}
