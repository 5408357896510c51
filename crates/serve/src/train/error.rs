//! Errors of a training.

use super::classifier::FitError;
use super::package::PackageError;
use crate::service::CallError;

/// Errors of a training.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The dataset or one of its rows is unsuitable for training.
    #[error("{0}")]
    Dataset(String),
    /// The vectors would need too much memory.
    #[error(
        "{rows} vectors of {width} numbers need {needed} bytes, more than the limit of {limit}; remove rows, or \
         ask the server's operator to raise `training.memory_bytes`"
    )]
    Memory {
        /// Number of rows.
        rows: u64,
        /// Numbers per vector.
        width: usize,
        /// Required bytes.
        needed: u64,
        /// Maximum bytes.
        limit: u64,
    },
    /// The model failed to embed.
    #[error("the model failed to embed: {0}")]
    Model(CallError),
    /// Fitting the classifier failed.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// Writing the package failed.
    #[error("cannot write the package: {0}")]
    Package(#[from] PackageError),
    /// Any other error.
    #[error("{0}")]
    Other(String),
}
