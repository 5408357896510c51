//! Runs one training: embeds a dataset's rows, fits a classifier to the vectors and writes both as
//! a package.
//!
//! Invariant: rows keep their order, even if their vectors arrive in another order. Only rows that
//! are being embedded are in memory. Dropping the future cancels the work. The package stays in a
//! temporary directory until [`Trained::move_to`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::cache::CacheDirectory;
use super::dataset::{DatasetLimits, DatasetSummary};
use super::embed::{DatasetEmbedding, DatasetReader};
use super::error::TrainError;
use super::fitting::FitTask;
use super::options::FitOptions;
use super::package::{PackageContents, PackageError};
use super::progress::TrainingProgress;
use super::report;
use crate::account::AccountId;
use crate::package::replace_directory;
use crate::service::Device;

/// Progress, in percent, at the end of the embedding; fitting ends at [`FITTED_PERCENT`].
const EMBEDDED_PERCENT: u8 = 80;
const FITTED_PERCENT: u8 = 95;

/// Parameters of a training.
pub struct Training<'a> {
    /// The service that computes the embeddings.
    pub device: &'a Device,
    /// The account on whose behalf embedding requests are made.
    pub caller: AccountId,
    /// The model token of the resulting package.
    pub name: &'a str,
    /// Summary of the dataset.
    pub summary: &'a DatasetSummary,
    /// Limits on the dataset.
    pub bounds: DatasetLimits,
    /// Options for fitting the classifier.
    pub options: &'a FitOptions,
    /// Cache of embedding vectors, if enabled.
    pub cache: Option<&'a CacheDirectory>,
    /// Maximum memory of all vectors, in bytes.
    pub memory: u64,
    /// Receives the progress.
    pub progress: &'a TrainingProgress,
    /// Directory in which the package is written. It must not exist yet.
    pub output_directory: PathBuf,
}

/// Result of a training, not yet served.
#[derive(Debug)]
pub struct Trained {
    made: PathBuf,
    /// Quality metrics, as JSON.
    pub metrics: Value,
}

impl Trained {
    /// Returns the directory in which the package was written.
    pub fn directory(&self) -> &Path {
        &self.made
    }

    /// Moves the package to its final directory.
    pub fn move_to(&self, place: &Path) -> Result<(), PackageError> {
        replace_directory(&self.made, place).map_err(PackageError::at(place))
    }
}

impl Drop for Trained {
    fn drop(&mut self) {
        // After the move, the directory no longer exists.
        let _ = std::fs::remove_dir_all(&self.made);
    }
}

/// Stops the fitting thread when dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Training<'_> {
    /// Trains on the rows read from `source`.
    pub async fn run(self, source: DatasetReader) -> Result<Trained, TrainError> {
        let holds = self.summary.holds;
        let config = self.options.predict_config().to_string();
        let encoder = self.device.encoder(holds, &config);
        let encoder = encoder.map_err(TrainError::Model)?;
        let embedding = DatasetEmbedding {
            device: self.device,
            caller: self.caller,
            encoder: &encoder,
            holds,
            options: self.options,
            cache: self.cache,
            bounds: self.bounds,
            rows: self.summary.rows,
            memory: self.memory,
        };
        let embedded = embedding
            .run(source, &|done, all| {
                self.progress.at(0, EMBEDDED_PERCENT, done, all);
            })
            .await?;
        let labels: Vec<String> = self.summary.labels.keys().cloned().collect();
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = StopOnDrop(Arc::clone(&stopped));
        let progress = Arc::new(TrainingProgress::default());
        let fitting = FitTask {
            options: self.options.clone(),
            labels: labels.clone(),
            rows_by_label: self.summary.labels.values().copied().collect(),
            multi_label: self.summary.multi_label,
            stopped,
            progress: Arc::clone(&progress),
        };
        let mut fitted = tokio::task::spawn_blocking(move || fitting.fit_rows(&embedded));
        let fitted = loop {
            tokio::select! {
                fitted = &mut fitted => break fitted,
                () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {
                    let done = u64::from(progress.percentage());
                    self.progress.at(EMBEDDED_PERCENT, FITTED_PERCENT, done, 100);
                }
            }
        };
        let fitted = fitted.map_err(|error| TrainError::Other(error.to_string()))??;
        drop(stop);
        self.progress.at(EMBEDDED_PERCENT, FITTED_PERCENT, 1, 1);
        let training = json!({"config": self.options.to_json(), "metrics": fitted.metrics});
        let (name, aside) = (self.name.to_owned(), self.output_directory.clone());
        let written = tokio::task::spawn_blocking(move || {
            let made = PackageContents {
                name: &name,
                encoder: &encoder,
                classifier: &fitted.classifier,
                labels: &labels,
                training: &training,
                report: &report::html(&name, &fitted.metrics),
                decision: fitted.decision,
            };
            let trained = Trained {
                made: aside,
                metrics: fitted.metrics,
            };
            made.write(&trained.made).map(|()| trained)
        });
        let written = written.await;
        Ok(written.map_err(|error| TrainError::Other(error.to_string()))??)
    }
}
