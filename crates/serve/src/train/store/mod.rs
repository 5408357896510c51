//! The interface of the training store, independent of the database behind it.

mod sql;

use super::record::{
    Dataset, DatasetId, Derived, FitConfig, Job, JobId, NewDataset, NewDerived, NewFitConfig,
    NewJob,
};
use crate::account::AccountId;
use crate::database::{DatabaseResult, Timestamp};

pub(crate) use sql::SqlTraining;

/// A store of dataset records, fit configs, derived services and jobs. Every method is atomic and
/// durable when it returns. Time is an argument. A finished job never changes again.
#[async_trait::async_trait]
pub trait TrainingStore: Send + Sync {
    /// Stores the record of a dataset.
    async fn create_dataset(&self, new: NewDataset, now: Timestamp) -> DatabaseResult<Dataset>;

    /// Lists the datasets of an account, or of all accounts, oldest first.
    async fn datasets(&self, account: Option<AccountId>) -> DatabaseResult<Vec<Dataset>>;

    /// Returns a dataset.
    async fn dataset(&self, id: DatasetId) -> DatabaseResult<Option<Dataset>>;

    /// Deletes the record of a dataset, unless an unfinished job needs it. Returns the record.
    async fn delete_dataset(&self, id: DatasetId) -> DatabaseResult<DatasetDeletion>;

    /// Stores a fit config.
    async fn create_fit_config(
        &self,
        new: NewFitConfig,
        now: Timestamp,
    ) -> DatabaseResult<FitConfig>;

    /// Lists the fit configs of a service, oldest first.
    async fn fit_configs(&self, service: i64) -> DatabaseResult<Vec<FitConfig>>;

    /// Stores a derived service; `None` if its number is taken.
    async fn create_derived(
        &self,
        new: NewDerived,
        now: Timestamp,
    ) -> DatabaseResult<Option<Derived>>;

    /// Lists all derived services, oldest first.
    async fn derived(&self) -> DatabaseResult<Vec<Derived>>;

    /// Stores a waiting job, unless its service has an unfinished job or its dataset is missing.
    async fn create_job(&self, new: NewJob, now: Timestamp) -> DatabaseResult<JobCreation>;

    /// Returns a job.
    async fn job(&self, id: JobId) -> DatabaseResult<Option<Job>>;

    /// Lists up to a maximum of an account's jobs, newest first, optionally only those of one
    /// service, or only those before another one.
    async fn jobs(
        &self,
        account: AccountId,
        service: Option<i64>,
        before: Option<JobId>,
        most: usize,
    ) -> DatabaseResult<Vec<Job>>;

    /// Starts the job that has waited longest; `None` if no job is waiting.
    async fn claim_job(&self, now: Timestamp) -> DatabaseResult<Option<Job>>;

    /// Stores the progress of a job. Returns `false` if this attempt has stopped running.
    async fn progress(&self, id: JobId, attempt: u32, percentage: u8) -> DatabaseResult<bool>;

    /// Ends a job with metrics or with an error. Returns `false` if this attempt is no longer
    /// running.
    async fn end_job(
        &self,
        id: JobId,
        attempt: u32,
        end: Result<String, String>,
        now: Timestamp,
    ) -> DatabaseResult<bool>;

    /// Cancels an unfinished job. Returns the job in its resulting state.
    async fn cancel_job(&self, id: JobId, now: Timestamp) -> DatabaseResult<Option<Job>>;

    /// Returns a running job to the queue and does not count the attempt. Called when the server
    /// stops.
    async fn put_back(&self, id: JobId, attempt: u32) -> DatabaseResult<()>;

    /// Returns jobs that a server was running which is gone to the queue; jobs with `attempts` attempts fail. Returns
    /// their number.
    async fn recover_jobs(&self, attempts: u32, now: Timestamp) -> DatabaseResult<u64>;

    /// Returns whether other servers use the same store.
    fn is_shared(&self) -> bool {
        false
    }
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
