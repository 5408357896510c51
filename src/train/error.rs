//! Why a training has no result.

use super::classifier::FitError;
use super::package::PackageError;
use crate::service::CallError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The dataset, or a row of it, cannot be trained on.
    #[error("{0}")]
    Dataset(String),
    /// The vectors take too much memory.
    #[error(
        "{rows} vectors of {width} numbers take {needed} bytes, and {limit} may be taken; leave rows out, or \
         have the server's operator set `training.memory_bytes` higher"
    )]
    Memory {
        /// Rows.
        rows: u64,
        /// Numbers of a vector.
        width: usize,
        /// Bytes needed.
        needed: u64,
        /// Bytes that may be taken.
        limit: u64,
    },
    /// The model did not embed.
    #[error("the model did not embed: {0}")]
    Model(CallError),
    /// No classifier was found.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// The package could not be written.
    #[error("the package could not be written: {0}")]
    Package(#[from] PackageError),
    /// Something else.
    #[error("{0}")]
    Other(String),
}
