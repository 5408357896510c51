//! Types of the task records that a store keeps.

use super::TaskId;
use crate::account::AccountId;
use crate::database::Timestamp;

/// State of a task (the four states of the specification).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Waiting in the queue.
    Queued,
    /// Running in its service.
    Processing,
    /// The answer is stored.
    Completed,
    /// Canceled or failed.
    Canceled,
}

/// Content of a body or an answer: either in the database or in the blob store with a checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredContent {
    /// In the database. The maximum size is a setting, at least [`StoredContent::INLINE_CHARS`]
    /// characters.
    Inline(Vec<u8>),
    /// In the blob store, named by the task's id (and by the attempt, for an answer).
    Blob {
        /// Size, in bytes.
        size: u64,
        /// SHA-256 of the bytes.
        sha256: [u8; 32],
    },
}

/// Policy for a task whose worker process crashed while running it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnCrash {
    /// Runs again, up to three times in all.
    #[default]
    Retry,
    /// Is canceled.
    Fail,
}

/// Idempotency data: lets a client repeat a request without creating a second task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The client's key, scoped to its account.
    pub key: String,
    /// SHA-256 over all parts of the request.
    pub fingerprint: [u8; 32],
}

/// A task to enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// Its id, from [`super::TaskIds`].
    pub id: TaskId,
    /// The account that made the request.
    pub caller: AccountId,
    /// The account that owns the service.
    pub owner: AccountId,
    /// The service's name.
    pub service: String,
    /// The predict data. A blob is already in the blob store.
    pub body: StoredContent,
    /// The predict config, as JSON text.
    pub config: Option<String>,
    /// The data type that the client named.
    pub data_type: Option<String>,
    /// The service's policy after a crash.
    pub on_crash: OnCrash,
    /// Set if the client sent an `Idempotency-Key`.
    pub idempotency: Option<Idempotency>,
}

/// The right to finish a task. It is lost when the task is canceled or claimed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// Number of the claim, starting at 1.
    pub attempt: u32,
}

/// A claimed task, ready to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedTask {
    /// The right to finish it.
    pub lease: Lease,
    /// The account that made the request.
    pub caller: AccountId,
    /// The account that owns the service.
    pub owner: AccountId,
    /// The service's name.
    pub service: String,
    /// The predict data.
    pub body: StoredContent,
    /// The predict config, as JSON text.
    pub config: Option<String>,
    /// The data type that the client named.
    pub data_type: Option<String>,
    /// The service's policy after a crash, as of the task's creation.
    pub on_crash: OnCrash,
}

/// The error that the result operation returns for a failed task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFailure {
    /// The HTTP status.
    pub status: u16,
    /// The error code, from which the body is built.
    pub code: String,
    /// The message for the user.
    pub message: String,
    /// The response body of the upstream service, if an upstream failed.
    pub body: Option<Vec<u8>>,
    /// The media type of that body; `None` means JSON.
    pub media_type: Option<String>,
    /// The attached instance that failed.
    pub worker: Option<String>,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskOutcome {
    /// With an answer.
    Answer {
        /// The answer.
        content: StoredContent,
        /// Its media type; `None` means JSON.
        media_type: Option<String>,
        /// The attached instance that gave it.
        worker: Option<String>,
        /// The attempt that produced it; part of the blob's name.
        attempt: u32,
        /// Expiry time; `None` if the answer stays as long as its record.
        expires_at: Option<Timestamp>,
    },
    /// With an answer that has expired.
    Expired,
    /// With an error.
    Failed(TaskFailure),
    /// Canceled by its user.
    CanceledByUser,
}

/// Records or answers that a store removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovedTasks {
    /// Number of removed tasks, or of removed answers.
    pub count: usize,
    /// The removed ones whose answers are blobs, in the order of their ids. Nothing refers to those
    /// blobs any more.
    pub blobs: Vec<Lease>,
}

impl RemovedTasks {
    /// Lists `count` removed tasks or answers, of which these were blobs.
    pub(super) fn new(count: usize, blobs: impl Iterator<Item = Lease>) -> Self {
        let mut blobs: Vec<Lease> = blobs.collect();
        blobs.sort_unstable_by_key(|lease| lease.task);
        Self { count, blobs }
    }
}

/// Result of deleting a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion {
    /// The task does not exist.
    Unknown,
    /// The task is waiting or running, and stays.
    Unfinished,
    /// The task was deleted.
    Done(RemovedTasks),
}

/// A blob that a task needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedBlob {
    /// The task.
    pub task: TaskId,
    /// The attempt that produced the answer; `None` for a body.
    pub attempt: Option<u32>,
    /// Size, in bytes.
    pub size: u64,
    /// SHA-256 of the bytes.
    pub sha256: [u8; 32],
}

/// Statistics of the stored tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Waiting tasks.
    pub waiting: u64,
    /// Running tasks.
    pub running: u64,
    /// Completed tasks, including those whose answers expired.
    pub completed: u64,
    /// Canceled and failed tasks.
    pub canceled: u64,
    /// Acceptance time of the oldest task.
    pub oldest: Option<Timestamp>,
}

/// A task as readers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// The account that made the request.
    pub caller: AccountId,
    /// The account that owns the service.
    pub owner: AccountId,
    /// The service's name.
    pub service: String,
    /// Its state.
    pub status: Status,
    /// Time of acceptance.
    pub created_at: Timestamp,
    /// Time of the final state; never before `created_at`.
    pub completed_at: Option<Timestamp>,
    /// Number of claims.
    pub attempt: u32,
    /// The outcome; set exactly when the state is final.
    pub outcome: Option<TaskOutcome>,
}

impl NewTask {
    /// Returns the bytes that the request counts towards the account's quota until the task ends.
    pub fn bytes(&self) -> u64 {
        let texts = [&self.config, &self.data_type].into_iter().flatten();
        self.body.size() + texts.map(|text| text.len() as u64).sum::<u64>()
    }
}

impl TaskOutcome {
    /// Returns the attached instance that answered, or failed.
    pub fn worker(&self) -> Option<&str> {
        match self {
            Self::Answer { worker, .. } => worker.as_deref(),
            Self::Failed(failure) => failure.worker.as_deref(),
            Self::Expired | Self::CanceledByUser => None,
        }
    }

    /// Returns the bytes that this outcome counts towards the account's quota.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Answer { content, .. } => content.size(),
            Self::Failed(failure) => failure.body.as_ref().map_or(0, |body| body.len() as u64),
            Self::Expired | Self::CanceledByUser => 0,
        }
    }
}

impl Status {
    /// Returns the name of the state in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Processing => "PROCESSING",
            Self::Completed => "COMPLETED",
            Self::Canceled => "CANCELED",
        }
    }

    /// Returns whether the state is final.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Canceled)
    }
}

impl StoredContent {
    /// Maximum length, in characters, of a text that is always kept in the record and as long as
    /// the record (the specification's limit).
    pub const INLINE_CHARS: usize = 150;

    /// Returns the size, in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Blob { size, .. } => *size,
        }
    }

    /// Returns whether an answer with this content expires before its record is deleted.
    pub fn expires(&self) -> bool {
        match self {
            Self::Inline(bytes) => !Self::fits_inline(bytes),
            Self::Blob { .. } => true,
        }
    }

    /// Returns whether these bytes fit into the record. Invalid UTF-8 is counted in bytes instead
    /// of characters.
    pub fn fits_inline(bytes: &[u8]) -> bool {
        bytes.len() <= Self::INLINE_CHARS
            || bytes.len() <= 4 * Self::INLINE_CHARS
                && std::str::from_utf8(bytes)
                    .is_ok_and(|text| text.chars().count() <= Self::INLINE_CHARS)
    }
}
