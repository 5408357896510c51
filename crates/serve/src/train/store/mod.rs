//! The interface of the training store, independent of the database behind it.

mod sqlite;

use super::record::{
    Dataset, DatasetId, Derived, FitConfig, Job, JobId, NewDataset, NewDerived, NewFitConfig,
    NewJob,
};
use crate::account::AccountId;
use crate::database::{DatabaseError, Timestamp};

pub(crate) use sqlite::SqliteTraining;

/// A store of dataset records, fit configs, derived services and jobs. Every method is atomic and
/// durable when it returns. Time is an argument. A finished job never changes again.
#[async_trait::async_trait]
pub trait TrainingStore: Send + Sync {
    /// Stores the record of a dataset.
    async fn create_dataset(
        &self,
        new: NewDataset,
        now: Timestamp,
    ) -> Result<Dataset, DatabaseError>;

    /// Lists the datasets of an account, or of all accounts, oldest first.
    async fn datasets(&self, account: Option<AccountId>) -> Result<Vec<Dataset>, DatabaseError>;

    /// Returns a dataset.
    async fn dataset(&self, id: DatasetId) -> Result<Option<Dataset>, DatabaseError>;

    /// Deletes the record of a dataset, unless an unfinished job needs it. Returns the record.
    async fn delete_dataset(&self, id: DatasetId) -> Result<DatasetDeletion, DatabaseError>;

    /// Stores a fit config.
    async fn create_fit_config(
        &self,
        new: NewFitConfig,
        now: Timestamp,
    ) -> Result<FitConfig, DatabaseError>;

    /// Lists the fit configs of a service, oldest first.
    async fn fit_configs(&self, service: i64) -> Result<Vec<FitConfig>, DatabaseError>;

    /// Stores a derived service; `None` if its number is taken.
    async fn create_derived(
        &self,
        new: NewDerived,
        now: Timestamp,
    ) -> Result<Option<Derived>, DatabaseError>;

    /// Lists all derived services, oldest first.
    async fn derived(&self) -> Result<Vec<Derived>, DatabaseError>;

    /// Stores a waiting job, unless its service has an unfinished job or its dataset is missing.
    async fn create_job(&self, new: NewJob, now: Timestamp) -> Result<JobCreation, DatabaseError>;

    /// Returns a job.
    async fn job(&self, id: JobId) -> Result<Option<Job>, DatabaseError>;

    /// Lists up to a maximum of an account's jobs, newest first, optionally of one service only.
    async fn jobs(
        &self,
        account: AccountId,
        service: Option<i64>,
        most: usize,
    ) -> Result<Vec<Job>, DatabaseError>;

    /// Starts the job that has waited longest; `None` if no job is waiting.
    async fn claim_job(&self, now: Timestamp) -> Result<Option<Job>, DatabaseError>;

    /// Stores the progress of a job. Returns `false` if this attempt has stopped running.
    async fn progress(
        &self,
        id: JobId,
        attempt: u32,
        percentage: u8,
    ) -> Result<bool, DatabaseError>;

    /// Ends a job with metrics or with an error. Returns `false` if this attempt is no longer
    /// running.
    async fn end_job(
        &self,
        id: JobId,
        attempt: u32,
        end: Result<String, String>,
        now: Timestamp,
    ) -> Result<bool, DatabaseError>;

    /// Cancels an unfinished job. Returns the job in its resulting state.
    async fn cancel_job(&self, id: JobId, now: Timestamp) -> Result<Option<Job>, DatabaseError>;

    /// Returns a running job to the queue and does not count the attempt. Called when the server
    /// stops.
    async fn put_back(&self, id: JobId, attempt: u32) -> Result<(), DatabaseError>;

    /// Returns jobs that a crashed server was running to the queue; jobs with `attempts` attempts
    /// fail. Returns their number.
    async fn recover_jobs(&self, attempts: u32, now: Timestamp) -> Result<u64, DatabaseError>;
}

/// Result of deleting a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatasetDeletion {
    /// The dataset was deleted; contains its record.
    Done(Box<Dataset>),
    /// The dataset does not exist.
    Unknown,
    /// An unfinished job needs it.
    Needed(JobId),
}

/// Result of creating a training job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobCreation {
    /// The new job.
    Done(Box<Job>),
    /// The service has an unfinished job.
    Busy(JobId),
    /// The account has no such dataset.
    NoDataset,
}
