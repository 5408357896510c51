//! The seam between training and what keeps it.

mod sqlite;

use super::record::{
    Dataset, DatasetId, Derived, FitConfig, Job, JobId, NewDataset, NewDerived, NewFitConfig,
    NewJob,
};
use crate::account::AccountId;
use crate::database::{DatabaseError, Timestamp};

pub(crate) use sqlite::SqliteTraining;

/// Keeps datasets' records, fit configs, derived services and jobs. Every method is atomic, and what it
/// changes is durable when it returns. Time is an argument. What has ended never changes again.
#[async_trait::async_trait]
pub trait TrainingStore: Send + Sync {
    /// Stores a dataset's record.
    async fn create_dataset(
        &self,
        new: NewDataset,
        now: Timestamp,
    ) -> Result<Dataset, DatabaseError>;

    /// The datasets of an account, or of all, the oldest first.
    async fn datasets(&self, account: Option<AccountId>) -> Result<Vec<Dataset>, DatabaseError>;

    /// A dataset.
    async fn dataset(&self, id: DatasetId) -> Result<Option<Dataset>, DatabaseError>;

    /// Deletes a dataset's record, unless a job that has not ended needs it; gives the record.
    async fn delete_dataset(&self, id: DatasetId) -> Result<Deleted, DatabaseError>;

    /// Stores a fit config.
    async fn create_fit_config(
        &self,
        new: NewFitConfig,
        now: Timestamp,
    ) -> Result<FitConfig, DatabaseError>;

    /// The fit configs of a service, the oldest first.
    async fn fit_configs(&self, service: i64) -> Result<Vec<FitConfig>, DatabaseError>;

    /// Stores a derived service; `None` if there is one of that number.
    async fn create_derived(
        &self,
        new: NewDerived,
        now: Timestamp,
    ) -> Result<Option<Derived>, DatabaseError>;

    /// All derived services, the oldest first.
    async fn derived(&self) -> Result<Vec<Derived>, DatabaseError>;

    /// Stores a job that waits, unless its service has one that has not ended, or its dataset is not there.
    async fn create_job(&self, new: NewJob, now: Timestamp) -> Result<Created, DatabaseError>;

    /// A job.
    async fn job(&self, id: JobId) -> Result<Option<Job>, DatabaseError>;

    /// At most so many jobs of an account, of one service if one is named, the newest first.
    async fn jobs(
        &self,
        account: AccountId,
        service: Option<i64>,
        most: usize,
    ) -> Result<Vec<Job>, DatabaseError>;

    /// Begins the job that has waited longest; `None` if none waits.
    async fn claim_job(&self, now: Timestamp) -> Result<Option<Job>, DatabaseError>;

    /// Notes how much of a job is done, if it runs by this attempt. `false` if it does not.
    async fn progress(
        &self,
        id: JobId,
        attempt: u32,
        percentage: u8,
    ) -> Result<bool, DatabaseError>;

    /// Ends a job that runs by this attempt: with metrics, or the reason why it failed. `false` if it does
    /// not run so.
    async fn end_job(
        &self,
        id: JobId,
        attempt: u32,
        end: Result<String, String>,
        now: Timestamp,
    ) -> Result<bool, DatabaseError>;

    /// Cancels a job that has not ended; gives it as it is then.
    async fn cancel_job(&self, id: JobId, now: Timestamp) -> Result<Option<Job>, DatabaseError>;

    /// Has a job that runs by this attempt wait again, as if it had not been begun: the server stops.
    async fn put_back(&self, id: JobId, attempt: u32) -> Result<(), DatabaseError>;

    /// Has jobs wait again that run, since whoever ran them is gone; those begun `attempts` times fail. Gives
    /// how many there were.
    async fn recover_jobs(&self, attempts: u32, now: Timestamp) -> Result<u64, DatabaseError>;
}

/// What became of a wish to delete a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone; this was it.
    Done(Box<Dataset>),
    /// There is none.
    Unknown,
    /// A job that has not ended needs it.
    Needed(JobId),
}

/// What became of a wish to train.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// The job.
    Done(Box<Job>),
    /// A job of the service has not ended.
    Busy(JobId),
    /// There is no such dataset of the account.
    NoDataset,
}
