//! The dependencies and settings of training jobs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::cache::CacheDirectory;
use super::dataset::DatasetLimits;
use super::derived::DerivedServices;
use super::embed::DatasetReader;
use super::record::Dataset;
use super::store::TrainingStore;
use crate::account::{AccountId, Accounts};
use crate::package::PackageMirror;
use crate::service::{Catalog, Service};

/// Maximum time from publishing a package until it is served.
pub(super) const MAX_SERVE_WAIT: Duration = Duration::from_mins(2);

/// Maximum number of attempts of a training whose base model is replaced meanwhile, or whose worker leaves.
pub(super) const MAX_TRAINING_ATTEMPTS: u32 = 3;

/// Finds a service by its owner and its name or number.
pub type FindService = Box<dyn Fn(AccountId, &str) -> Option<Arc<Service>> + Send + Sync>;

/// Opens the content of a dataset.
pub type OpenDataset = Box<
    dyn Fn(Dataset) -> std::pin::Pin<Box<dyn Future<Output = Result<DatasetReader, String>> + Send>>
        + Send
        + Sync,
>;

/// Dependencies and settings of the training jobs.
pub struct JobsOptions {
    /// The store of jobs.
    pub store: Arc<dyn TrainingStore>,
    /// Table of derived services.
    pub derived: Arc<DerivedServices>,
    /// Accounts, for the tokens of workers that attach what they trained.
    pub accounts: Arc<Accounts>,
    /// Finds services.
    pub find: FindService,
    /// Opens datasets.
    pub open: OpenDataset,
    /// The catalog that serves the results.
    pub catalog: Arc<Catalog>,
    /// Directory of the results, with a subdirectory per account, named by its number.
    pub directory: PathBuf,
    /// Shares the results with the servers of the same database, if there are any.
    pub mirror: Option<Arc<PackageMirror>>,
    /// The cache of embedding vectors.
    pub cache: CacheDirectory,
    /// Limits on datasets.
    pub bounds: DatasetLimits,
    /// Maximum memory of a dataset's vectors, in bytes.
    pub memory: u64,
    /// Maximum number of jobs running at the same time.
    pub running: usize,
    /// Maximum number of attempts of a job that server stops interrupt.
    pub attempts: u32,
    /// False if other servers run the jobs.
    pub dispatches: bool,
}
