//! What a store keeps of a task.

use super::TaskId;
use crate::account::AccountId;
use crate::database::Timestamp;

/// Where a task stands (the specification's four).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Waits for its turn.
    Queued,
    /// Is with its service.
    Processing,
    /// Its answer is there.
    Completed,
    /// Canceled, or failed.
    Canceled,
}

/// Bytes in the record itself, or in the blob store with a checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// In the record: how many at most is a setting, but [`Content::INLINE`] characters always.
    Inline(Vec<u8>),
    /// In the blob store, under the task's id (and the attempt, for an answer).
    Blob {
        /// Bytes.
        size: u64,
        /// Their SHA-256.
        sha256: [u8; 32],
    },
}

/// What becomes of a task whose worker process died while it ran it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnCrash {
    /// It runs again, up to three times in all.
    #[default]
    Retry,
    /// It is canceled.
    Fail,
}

/// A request that a client may repeat without making a second task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The client's key; counts within its account.
    pub key: String,
    /// SHA-256 of everything that makes the request.
    pub fingerprint: [u8; 32],
}

/// A task to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// Its id, from [`super::TaskIds`].
    pub id: TaskId,
    /// The account on whose behalf it is made.
    pub caller: AccountId,
    /// The account that owns the service.
    pub owner: AccountId,
    /// The service's name.
    pub service: String,
    /// The predict data. A blob is in the store already.
    pub body: Content,
    /// The predict config, as JSON text.
    pub config: Option<String>,
    /// The data type that the client named.
    pub data_type: Option<String>,
    /// What the service wants after a crash.
    pub on_crash: OnCrash,
    /// Set if the client sent an `Idempotency-Key`.
    pub idempotency: Option<Idempotency>,
}

/// The right to finish a task: lost when the task is canceled or claimed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// Which claim of it, from 1.
    pub attempt: u32,
}

/// A task that was claimed and is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The right to finish it.
    pub lease: Lease,
    /// The account on whose behalf it was made.
    pub caller: AccountId,
    /// The account that owns the service.
    pub owner: AccountId,
    /// The service's name.
    pub service: String,
    /// The predict data.
    pub body: Content,
    /// The predict config, as JSON text.
    pub config: Option<String>,
    /// The data type that the client named.
    pub data_type: Option<String>,
    /// What the service wanted after a crash when the task was made.
    pub on_crash: OnCrash,
}

/// What the result operation answers for a task that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status.
    pub status: u16,
    /// The error's code; the body is made of it.
    pub code: String,
    /// In words, for the user.
    pub message: String,
    /// The body as the service sent it, where an upstream failed.
    pub body: Option<Vec<u8>>,
    /// The media type of that body; `None` is JSON.
    pub media_type: Option<String>,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// With an answer.
    Answer {
        /// The answer.
        content: Content,
        /// Its media type; `None` is JSON.
        media_type: Option<String>,
        /// Which attempt gave it: a blob's name has it.
        attempt: u32,
        /// From when on it is gone; `None` for one that stays as long as its record.
        expires_at: Option<Timestamp>,
    },
    /// With an answer that is gone.
    Expired,
    /// With an error.
    Failed(Failure),
    /// By its user's wish.
    CanceledByUser,
}

/// What a store let go of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// Tasks, or answers of tasks.
    pub count: usize,
    /// Those whose answers are blobs, in the order of their ids: nothing names these any more.
    pub blobs: Vec<Lease>,
}

/// What came of the wish to delete a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion {
    /// There is no such task.
    Unknown,
    /// It waits or runs: it stays.
    Unfinished,
    /// It is gone.
    Done(Removed),
}

/// A blob that a task needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedBlob {
    /// The task.
    pub task: TaskId,
    /// The attempt that gave it, of an answer; `None` for a body.
    pub attempt: Option<u32>,
    /// Bytes.
    pub size: u64,
    /// Their SHA-256.
    pub sha256: [u8; 32],
}

/// How much is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Waiting tasks.
    pub waiting: u64,
    /// Running tasks.
    pub running: u64,
    /// Tasks with an answer, or one that expired.
    pub completed: u64,
    /// Canceled and failed tasks.
    pub canceled: u64,
    /// When the first of them was accepted.
    pub oldest: Option<Timestamp>,
}

/// A task, as readers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// The account on whose behalf it was made.
    pub caller: AccountId,
    /// The account that owns the service.
    pub owner: AccountId,
    /// The service's name.
    pub service: String,
    /// Where it stands.
    pub status: Status,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it reached its final state; never before `created_at`.
    pub completed_at: Option<Timestamp>,
    /// How often it was claimed.
    pub attempt: u32,
    /// How it ended: set when the state is final, and only then.
    pub outcome: Option<Outcome>,
}

impl NewTask {
    /// Bytes that it takes until it ends.
    pub fn bytes(&self) -> u64 {
        let texts = [&self.config, &self.data_type].into_iter().flatten();
        self.body.size() + texts.map(|text| text.len() as u64).sum::<u64>()
    }
}

impl Outcome {
    /// Bytes that a task takes which ended so.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Answer { content, .. } => content.size(),
            Self::Failed(failure) => failure.body.as_ref().map_or(0, |body| body.len() as u64),
            Self::Expired | Self::CanceledByUser => 0,
        }
    }
}

impl Status {
    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Processing => "PROCESSING",
            Self::Completed => "COMPLETED",
            Self::Canceled => "CANCELED",
        }
    }

    /// Whether nothing comes after it.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Canceled)
    }
}

impl Content {
    /// The longest text that is always kept in the record, and for as long as it, in characters (the
    /// specification's limit).
    pub const INLINE: usize = 150;

    /// Bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Blob { size, .. } => *size,
        }
    }

    /// Whether an answer of this content expires before its record is deleted.
    pub fn expires(&self) -> bool {
        match self {
            Self::Inline(bytes) => !Self::fits_inline(bytes),
            Self::Blob { .. } => true,
        }
    }

    /// Whether these bytes belong into the record. What is no UTF-8 counts by its bytes.
    pub fn fits_inline(bytes: &[u8]) -> bool {
        bytes.len() <= Self::INLINE
            || bytes.len() <= 4 * Self::INLINE
                && std::str::from_utf8(bytes).is_ok_and(|text| text.chars().count() <= Self::INLINE)
    }
}
