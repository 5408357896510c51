//! Runs one training: embeds a dataset's rows, fits a classifier to the vectors and writes both as
//! a package.
//!
//! Invariant: rows keep their order, even if their vectors arrive in another order. Only rows that
//! are being embedded are in memory. Dropping the future cancels the work. The package stays in a
//! temporary directory until [`Trained::publish`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use serde_json::{Value, json};

use super::cache::CacheDirectory;
use super::classifier::{self, Examples, Metrics};
use super::dataset::{DatasetLimits, DatasetSummary};
use super::embed::{DatasetEmbedding, DatasetReader, EmbeddedRows};
use super::error::TrainError;
use super::options::{ClassWeights, FitOptions};
use super::package::{PackageContents, PackageError, publish};
use crate::account::AccountId;
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

/// Progress of a training, in percent.
#[derive(Debug, Default)]
pub struct TrainingProgress(AtomicU8);

/// Result of a training, not yet published.
#[derive(Debug)]
pub struct Trained {
    made: PathBuf,
    /// Quality metrics, as JSON.
    pub metrics: Value,
}

impl TrainingProgress {
    /// Returns the percentage.
    pub fn percentage(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the progress to the point between two percentages that corresponds to `done` of `all`.
    pub(super) fn at(&self, from: u8, to: u8, done: u64, all: u64) {
        let part = u64::from(to - from) * done.min(all) / all.max(1);
        let now = from + u8::try_from(part).unwrap_or(0);
        self.0.fetch_max(now, Ordering::Relaxed);
    }
}

impl Trained {
    /// Moves the package to its final directory.
    pub fn publish(&self, place: &Path) -> Result<(), PackageError> {
        publish(&self.made, place)
    }
}

impl Drop for Trained {
    fn drop(&mut self) {
        // After publishing, the directory no longer exists.
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
            stopped,
            progress: Arc::clone(&progress),
        };
        let mut fitted = tokio::task::spawn_blocking(move || fitting.fit(&embedded));
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

/// Parameters of the fitting thread.
struct FitTask {
    options: FitOptions,
    labels: Vec<String>,
    stopped: Arc<AtomicBool>,
    progress: Arc<TrainingProgress>,
}

/// A classifier with its quality metrics.
struct MeasuredClassifier {
    classifier: classifier::Classifier,
    metrics: Value,
}

impl FitTask {
    fn fit(&self, embedded: &EmbeddedRows) -> Result<MeasuredClassifier, TrainError> {
        let place = |label: &String| {
            let found = self.labels.binary_search(label).ok();
            found.and_then(|place| u32::try_from(place).ok())
        };
        let places: Option<Vec<u32>> = embedded.labels.iter().map(place).collect();
        let places = places.ok_or_else(|| {
            TrainError::Dataset("the dataset changed during the training".to_owned())
        })?;
        let options = &self.options;
        let count = self.labels.len();
        let fraction = options.validation_fraction;
        let split = classifier::split(&places, count, fraction, options.seed);
        let training = RowSubset::of(embedded, &places, &split.training);
        let validation = RowSubset::of(embedded, &places, &split.validation);
        let goes_on = |evaluations: u64| {
            self.progress
                .at(0, 100, evaluations, options.max_iterations);
            !self.stopped.load(Ordering::Relaxed)
        };
        let examples = training.examples(embedded.width, count);
        let kept = validation.examples(embedded.width, count);
        let FitSettings {
            l2,
            class_weights,
            weights,
            compared,
        } = self.settle((examples, kept))?;
        let fitted = classifier::fit(examples, weights, l2, options, &goes_on)?;
        let measure = |rows: &RowSubset| {
            let taken = fitted.classifier.predict(&rows.vectors);
            Metrics::of(&self.labels, &rows.labels, &taken)
        };
        let on_kept = (!validation.labels.is_empty()).then(|| measure(&validation));
        let warnings: Vec<String> = on_kept.iter().filter_map(Metrics::warning).collect();
        let metrics = json!({
            "rows": places.len(),
            "training_rows": training.labels.len(),
            "validation_rows": validation.labels.len(),
            "dimensions": embedded.width,
            "loss": fitted.loss,
            "evaluations": fitted.evaluations,
            "converged": fitted.converged,
            "training_accuracy": measure(&training).accuracy,
            "validation": on_kept,
            "l2": l2,
            "class_weights": class_weights.to_json(),
            "compared": compared,
            "warnings": warnings,
        });
        Ok(MeasuredClassifier {
            classifier: fitted.classifier,
            metrics,
        })
    }

    /// Determines the penalty and the class weights: the given ones, or the best on the validation
    /// rows.
    fn settle(&self, rows: (Examples<'_>, Examples<'_>)) -> Result<FitSettings, TrainError> {
        let options = &self.options;
        let offered = match (&options.class_weights, options.l2) {
            (Some(given), _) => vec![given.clone()],
            (None, Some(_)) => vec![ClassWeights::Equal],
            (None, None) => vec![ClassWeights::Equal, ClassWeights::Balanced],
        };
        let (training, _) = rows;
        let weighings = offered.iter();
        let weighings = weighings.map(|it| weights(it, &self.labels, training.labels));
        let mut weighings = weighings.collect::<Result<Vec<_>, _>>()?;
        let (l2, place, compared) = if let Some(l2) = options.l2 {
            (l2, 0, 0)
        } else {
            let goes_on = |_: u64| !self.stopped.load(Ordering::Relaxed);
            let chosen = classifier::choose(rows, &weighings, options, &goes_on)?;
            (chosen.l2, chosen.weights, chosen.tried)
        };
        Ok(FitSettings {
            l2,
            weights: weighings.swap_remove(place),
            class_weights: offered[place].clone(),
            compared,
        })
    }
}

/// Penalty and class weights for the final fit.
struct FitSettings {
    l2: f64,
    class_weights: ClassWeights,
    /// Weight of each training row.
    weights: Vec<f64>,
    /// Number of fits that were compared to choose both.
    compared: usize,
}

/// A subset of the rows.
struct RowSubset {
    vectors: Vec<f32>,
    labels: Vec<u32>,
}

impl RowSubset {
    fn of(embedded: &EmbeddedRows, places: &[u32], rows: &[usize]) -> Self {
        let width = embedded.width;
        let mut vectors = Vec::with_capacity(rows.len() * width);
        for row in rows {
            vectors.extend_from_slice(&embedded.vectors[row * width..(row + 1) * width]);
        }
        let labels = rows.iter().map(|row| places[*row]).collect();
        Self { vectors, labels }
    }

    fn examples(&self, width: usize, count: usize) -> Examples<'_> {
        Examples {
            vectors: &self.vectors,
            width,
            labels: &self.labels,
            count,
        }
    }
}

/// Returns the weight of each row.
#[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
fn weights(wanted: &ClassWeights, labels: &[String], rows: &[u32]) -> Result<Vec<f64>, TrainError> {
    let by_label: Vec<f64> = match wanted {
        ClassWeights::Equal => vec![1.0; labels.len()],
        ClassWeights::Balanced => {
            let mut counts = vec![0_u64; labels.len()];
            for label in rows {
                counts[*label as usize] += 1;
            }
            let share = rows.len() as f64 / labels.len() as f64;
            counts
                .iter()
                .map(|count| share / (*count).max(1) as f64)
                .collect()
        }
        ClassWeights::Given(given) => {
            if let Some(stray) = given
                .keys()
                .find(|label| labels.binary_search(label).is_err())
            {
                let message =
                    format!("`class_weights` names the label `{stray}`, which no row has");
                return Err(TrainError::Dataset(message));
            }
            let weight = |label: &String| given.get(label).copied().unwrap_or(1.0);
            labels.iter().map(weight).collect()
        }
    };
    Ok(rows.iter().map(|label| by_label[*label as usize]).collect())
}
