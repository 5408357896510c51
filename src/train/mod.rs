//! Training: datasets in, a classifier on a model's embeddings out, as a package.
//!
//! Invariant: the same dataset, config and model give the same package; a job that was taken is on disk and
//! reaches one final state once. Knows nothing of HTTP, and of blobs only that a dataset can be opened.

mod cache;
pub mod classifier;
pub mod dataset;
mod derived;
mod digest;
mod embed;
mod error;
mod jobs;
mod options;
mod package;
mod record;
mod store;
mod trainer;

pub use cache::CacheDirectory;
pub use derived::DerivedServices;
pub use embed::Source;
pub use error::TrainError;
pub use jobs::{FindService, Jobs, JobsOptions, OpenDataset, directory_of, package_directory};
pub use options::{ClassWeights, FitOptions};
pub use record::{
    Dataset, DatasetId, Derived, FitConfig, Job, JobId, JobState, NewDataset, NewDerived,
    NewFitConfig, NewJob,
};
pub(crate) use store::SqliteTraining;
pub use store::{Created, Deleted, TrainingStore};
pub use trainer::{Progress, Trained, Training};
