//! Training: fits a classifier on a model's embeddings of a dataset and writes the result as a
//! package.
//!
//! The gateway creates training jobs in the [`TrainingStore`]; [`Jobs`] runs them and serves the
//! resulting packages.
//!
//! Invariant: the same dataset, config and model produce the same package. An accepted job is on
//! disk and reaches exactly one final state. This module knows nothing of HTTP, and of blobs only
//! that a dataset can be opened.

mod advice;
mod away;
mod cache;
pub mod classifier;
pub mod dataset;
mod derived;
mod embed;
mod error;
mod fitting;
mod jobs;
mod jobs_options;
mod options;
mod package;
mod progress;
mod record;
mod report;
mod sets;
mod store;
mod trainer;

pub use cache::CacheDirectory;
pub use derived::DerivedServices;
pub use embed::DatasetReader;
pub use error::TrainError;
pub(crate) use jobs::IN_PROGRESS_DIRECTORY;
pub use jobs::{Jobs, directory_of, package_directory, results_directory};
pub use jobs_options::{FindService, JobsOptions, OpenDataset};
pub use options::{ClassWeights, FitMethod, FitOptions};
pub(crate) use package::model_token;
pub use progress::TrainingProgress;
pub use record::{
    Dataset, DatasetId, Derived, FitConfig, Job, JobId, JobState, NewDataset, NewDerived,
    NewFitConfig, NewJob,
};
pub use report::html as report_page;
pub(crate) use store::SqlTraining;
pub use store::{DatasetDeletion, JobCreation, TrainingStore};
pub use trainer::{Trained, Training};
