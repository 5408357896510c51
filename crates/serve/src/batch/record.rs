//! Types of stored files and batches.

use serde::{Deserialize, Serialize};

use crate::account::AccountId;
use crate::database::Timestamp;

/// The number of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredFileId(pub i64);

/// The number of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub i64);

/// The purpose of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePurpose {
    /// Requests of a batch.
    Batch,
    /// Answers of a batch.
    BatchOutput,
}

/// A file to store. Its content is already in the blob store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// The account that owns it.
    pub account: AccountId,
    /// Its name, which need not be unique.
    pub name: String,
    /// Its purpose.
    pub purpose: FilePurpose,
    /// The name of its content in the blob store.
    pub blob: String,
    /// Size of its content, in bytes.
    pub size: u64,
    /// SHA-256 of its content.
    pub sha256: [u8; 32],
    /// The time when it is deleted.
    pub expires_at: Timestamp,
}

/// A stored file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Its number.
    pub id: StoredFileId,
    /// Its stored properties.
    pub is: NewFile,
    /// Time of creation.
    pub created_at: Timestamp,
}

/// The operation to which the requests of a batch go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchEndpoint {
    /// Chat completions.
    Chat,
    /// Completions of texts.
    Completion,
    /// Embeddings.
    Embeddings,
    /// Responses.
    Responses,
}

/// State of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchState {
    /// Its input is not checked yet.
    Validating,
    /// Its input is invalid.
    Failed,
    /// Its requests are running or waiting.
    InProgress,
    /// All requests are answered; the files are being written.
    Finalizing,
    /// Its files are stored.
    Completed,
    /// Its time is over; the files contain the answers until then.
    Expired,
    /// Its user canceled it; the files are not stored yet.
    Canceling,
    /// Its user canceled it; the files contain the answers until then.
    Canceled,
}

/// A batch to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBatch {
    /// The account that owns it.
    pub account: AccountId,
    /// The operation of its requests.
    pub endpoint: BatchEndpoint,
    /// The file with its requests.
    pub input: StoredFileId,
    /// Notes of its user, as JSON text.
    pub metadata: String,
    /// The time when it ends at the latest.
    pub expires_at: Timestamp,
}

/// A stored batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBatch {
    /// Its number.
    pub id: BatchId,
    /// Its stored properties.
    pub is: NewBatch,
    /// Its state.
    pub state: BatchState,
    /// Number of its requests; 0 until the input is checked.
    pub lines: u64,
    /// Number of requests that were answered.
    pub completed: u64,
    /// Number of requests that failed.
    pub failed: u64,
    /// Faults of the input.
    pub faults: Vec<LineFault>,
    /// The file with the answers, if there are any.
    pub output: Option<StoredFileId>,
    /// The file with the failed requests, if there are any.
    pub failures: Option<StoredFileId>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time when the first request could run.
    pub began_at: Option<Timestamp>,
    /// Time when its user canceled it.
    pub canceling_at: Option<Timestamp>,
    /// Time when all requests were answered.
    pub finalizing_at: Option<Timestamp>,
    /// Time of the end.
    pub ended_at: Option<Timestamp>,
}

/// A fault of a batch's input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineFault {
    /// A code for programs.
    pub code: String,
    /// Number of the line, from 1; `None` for a fault of the whole file.
    pub line: Option<u64>,
    /// A message for people.
    pub message: String,
    /// The faulty field of the line.
    pub param: Option<String>,
}

/// The answer of a request of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineOutcome {
    /// Number of the line, from 1.
    pub line: u64,
    /// The user's name of the request, unique in the batch.
    pub custom_id: String,
    /// The HTTP status that a single request would have.
    pub status: u16,
    /// The body of the answer: JSON.
    pub answer: Vec<u8>,
}

impl FilePurpose {
    /// All purposes.
    pub const ALL: [Self; 2] = [Self::Batch, Self::BatchOutput];

    /// Returns the name of the purpose in the API and the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::BatchOutput => "batch_output",
        }
    }

    /// Parses the name of a purpose.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.name() == name)
    }
}

impl BatchEndpoint {
    /// All endpoints.
    pub const ALL: [Self; 4] = [
        Self::Chat,
        Self::Completion,
        Self::Embeddings,
        Self::Responses,
    ];

    /// Returns the path of the operation, as clients write it.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completion => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Responses => "/v1/responses",
        }
    }

    /// Parses the path of an operation.
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|endpoint| endpoint.path() == path)
    }
}

impl BatchState {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Validating,
        Self::Failed,
        Self::InProgress,
        Self::Finalizing,
        Self::Completed,
        Self::Expired,
        Self::Canceling,
        Self::Canceled,
    ];

    /// Returns the name of the state in the API and the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Failed => "failed",
            Self::InProgress => "in_progress",
            Self::Finalizing => "finalizing",
            Self::Completed => "completed",
            Self::Expired => "expired",
            Self::Canceling => "cancelling",
            Self::Canceled => "cancelled",
        }
    }

    /// Parses the name of a state.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

impl LineOutcome {
    /// Returns whether the request succeeded.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}
