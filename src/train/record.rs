//! What is kept of training: datasets, fit configs, derived services, jobs.

use super::dataset::{Format, Holds, Summary};
use crate::account::AccountId;
use crate::database::Timestamp;

/// A dataset's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatasetId(pub i64);

/// A job's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub i64);

/// A dataset to be stored; its content is in the blob store already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDataset {
    /// Whose it is.
    pub account: AccountId,
    /// Its name; any number may have the same.
    pub name: String,
    /// What it is, in its owner's words.
    pub description: String,
    /// The data type that its owner named.
    pub data_type: String,
    /// Who may use it, as its owner named it.
    pub access_mode: String,
    /// The name of the file that it was uploaded from.
    pub file_name: String,
    /// How its content is written.
    pub format: Format,
    /// What is in it.
    pub summary: Summary,
    /// The name of its content in the blob store.
    pub blob: String,
    /// Bytes of its content.
    pub size: u64,
    /// The content's checksum.
    pub sha256: [u8; 32],
}

/// A dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// Its number.
    pub id: DatasetId,
    /// What it is.
    pub is: NewDataset,
    /// When it was stored.
    pub created_at: Timestamp,
}

/// A training configuration to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFitConfig {
    /// Its service's number.
    pub service: i64,
    /// Its name.
    pub name: String,
    /// The config, JSON text.
    pub config: String,
    /// Whether it is the one to begin with. It takes the place of the default before it.
    pub is_default: bool,
}

/// A stored training configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FitConfig {
    /// Its number.
    pub id: i64,
    /// What it is.
    pub is: NewFitConfig,
    /// When it was stored.
    pub created_at: Timestamp,
}

/// A service to be derived from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDerived {
    /// The lasting number of the new service.
    pub service: i64,
    /// Whose it is.
    pub owner: AccountId,
    /// Whose it is, by name.
    pub owner_name: String,
    /// Its name.
    pub name: String,
    /// The account of the service that it is derived from.
    pub base_owner: AccountId,
    /// That account's name.
    pub base_owner_name: String,
    /// That service's lasting number.
    pub base: i64,
    /// That service's name.
    pub base_name: String,
    /// Whether its owner wants it hidden: the registry shows it to nobody else.
    pub hidden: bool,
}

/// A service that was derived from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// What it is.
    pub is: NewDerived,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A training job's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// It waits for its turn.
    Waiting,
    /// It runs.
    Running,
    /// The trained service is ready.
    Success,
    /// It failed, and says why.
    Failed,
    /// Its user canceled it.
    Canceled,
}

/// A training job to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Whose it is.
    pub account: AccountId,
    /// The lasting number of the derived service.
    pub service: i64,
    /// That service's name.
    pub service_name: String,
    /// What it is trained on.
    pub dataset: DatasetId,
    /// The training configuration, JSON text.
    pub config: String,
}

/// A training job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// What it is.
    pub is: NewJob,
    /// Its state.
    pub state: JobState,
    /// How much of it is done, 0 to 100.
    pub percentage: u8,
    /// How often it was begun.
    pub attempt: u32,
    /// Why it failed.
    pub error: Option<String>,
    /// What came of it, JSON text: how well the classifier does.
    pub metrics: Option<String>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When it was begun last.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

impl JobState {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Waiting,
        Self::Running,
        Self::Success,
        Self::Failed,
        Self::Canceled,
    ];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "WAITING",
            Self::Running => "RUNNING",
            Self::Success => "SUCCESS",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
        }
    }

    /// The state of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether it stays so.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }
}

impl NewDataset {
    /// What its rows hold.
    pub fn holds(&self) -> Holds {
        self.summary.holds
    }
}
