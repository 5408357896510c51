//! Types of stored training records: datasets, fit configs, derived services and jobs.

use super::dataset::{ContentKind, DatasetFormat, DatasetSummary};
use crate::account::AccountId;
use crate::database::Timestamp;

/// The number of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatasetId(pub i64);

/// The number of a training job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub i64);

/// A dataset to store. Its content is already in the blob store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDataset {
    /// The account that owns it.
    pub account: AccountId,
    /// Its name, which need not be unique.
    pub name: String,
    /// Free-text description by its owner.
    pub description: String,
    /// The data type that its owner specified.
    pub data_type: String,
    /// The access mode that its owner specified.
    pub access_mode: String,
    /// The name of the uploaded file.
    pub file_name: String,
    /// File format of its content.
    pub format: DatasetFormat,
    /// Summary of its rows.
    pub summary: DatasetSummary,
    /// The name of its content in the blob store.
    pub blob: String,
    /// Size of its content, in bytes.
    pub size: u64,
    /// SHA-256 of its content.
    pub sha256: [u8; 32],
}

/// A stored dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// Its number.
    pub id: DatasetId,
    /// Its stored properties.
    pub is: NewDataset,
    /// Time of creation.
    pub created_at: Timestamp,
}

/// A training configuration to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFitConfig {
    /// The number of its service.
    pub service: i64,
    /// Its name.
    pub name: String,
    /// The config as JSON text.
    pub config: String,
    /// True if this becomes the default config of its service, replacing the previous default.
    pub is_default: bool,
}

/// A stored training configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FitConfig {
    /// Its number.
    pub id: i64,
    /// Its stored properties.
    pub is: NewFitConfig,
    /// Time of creation.
    pub created_at: Timestamp,
}

/// A derived service to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDerived {
    /// The permanent number of the new service.
    pub service: i64,
    /// The account that owns it.
    pub owner: AccountId,
    /// The name of that account.
    pub owner_name: String,
    /// Its name.
    pub name: String,
    /// The account that owns the base service.
    pub base_owner: AccountId,
    /// The name of that account.
    pub base_owner_name: String,
    /// The permanent number of the base service.
    pub base: i64,
    /// The name of the base service.
    pub base_name: String,
    /// True if its owner hides it: the registry shows it to nobody else.
    pub hidden: bool,
}

/// A service that is derived from another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// Its stored properties.
    pub is: NewDerived,
    /// Time of creation.
    pub created_at: Timestamp,
}

/// State of a training job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Waiting in the queue.
    Waiting,
    /// Running.
    Running,
    /// The trained service is being served.
    Success,
    /// Failed; the job contains the error.
    Failed,
    /// Canceled by its user.
    Canceled,
}

/// A training job to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// The account that owns it.
    pub account: AccountId,
    /// The permanent number of the derived service.
    pub service: i64,
    /// The name of that service.
    pub service_name: String,
    /// The dataset to train on.
    pub dataset: DatasetId,
    /// The training configuration as JSON text.
    pub config: String,
}

/// A training job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// Its stored properties.
    pub is: NewJob,
    /// Its state.
    pub state: JobState,
    /// Progress, 0 to 100.
    pub percentage: u8,
    /// Number of attempts.
    pub attempt: u32,
    /// The error, if it failed.
    pub error: Option<String>,
    /// Quality metrics of the classifier as JSON text, if it succeeded.
    pub metrics: Option<String>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last start.
    pub started_at: Option<Timestamp>,
    /// Time of the end.
    pub ended_at: Option<Timestamp>,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Waiting,
        Self::Running,
        Self::Success,
        Self::Failed,
        Self::Canceled,
    ];

    /// Returns the name of the state in the API and the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "WAITING",
            Self::Running => "RUNNING",
            Self::Success => "SUCCESS",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
        }
    }

    /// Parses the name of a state.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Returns whether the state is final.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }
}

impl NewDataset {
    /// Returns the kind of content of its rows.
    pub fn content_kind(&self) -> ContentKind {
        self.summary.holds
    }
}
