//! Computes the embedding vectors of a dataset's rows in batches and caches them on disk.

use std::io::Read;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::sync::mpsc;

use super::cache::{self, CacheDirectory, VectorCache, VectorKey};
use super::dataset::{ContentKind, DatasetLimits, DatasetRow, RowError, RowLabels, Rows};
use super::error::TrainError;
use super::options::FitOptions;
use crate::account::AccountId;
use crate::service::{CallError, Device, EncoderFiles, Refusal};
use pkgtool_text::embedding::{EmbeddingInput, MAX_TEXTS_BYTES};

/// Maximum number of rows in a batch, and the size in bytes at which a batch is full.
const BATCH_ROWS: usize = 64;
const BATCH_BYTES: usize = MAX_TEXTS_BYTES / 4;

/// Number of batches in flight: the next one is prepared while one runs.
const BATCHES_IN_FLIGHT: usize = 2;

/// Delay before a request is retried because the queue was full, and the maximum number of retries.
const RETRY_DELAY: std::time::Duration = std::time::Duration::from_millis(250);
const MAX_RETRIES: u32 = 240;

/// Reader of a dataset's bytes.
pub type DatasetReader = Box<dyn Read + Send>;

/// Parameters of the embedding of a dataset.
pub(super) struct DatasetEmbedding<'a> {
    pub(super) device: &'a Device,
    pub(super) caller: AccountId,
    pub(super) encoder: &'a EncoderFiles,
    pub(super) holds: ContentKind,
    pub(super) options: &'a FitOptions,
    pub(super) cache: Option<&'a CacheDirectory>,
    pub(super) bounds: DatasetLimits,
    /// Number of rows.
    pub(super) rows: u64,
    /// Maximum memory of all vectors, in bytes.
    pub(super) memory: u64,
}

/// The vectors of all rows.
#[derive(Debug)]
pub(super) struct EmbeddedRows {
    /// `rows × width` numbers.
    pub(super) vectors: Vec<f32>,
    pub(super) width: usize,
    /// The labels of each row.
    pub(super) labels: Vec<RowLabels>,
    /// The line of each row.
    pub(super) lines: Vec<u64>,
}

/// Rows with the vectors that are already cached.
struct Batch {
    rows: Vec<DatasetRow>,
    keys: Vec<VectorKey>,
    vectors: Vec<Option<Vec<f32>>>,
}

impl DatasetEmbedding<'_> {
    /// Embeds all rows. `done` receives the number of embedded rows and the total.
    pub(super) async fn run(
        &self,
        source: DatasetReader,
        done: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<EmbeddedRows, TrainError> {
        let mut cache = self.open_cache();
        let mut batches = read(source, self.bounds);
        let mut embedded = EmbeddedRows {
            vectors: Vec::new(),
            width: 0,
            labels: Vec::new(),
            lines: Vec::new(),
        };
        loop {
            let mut ready = Vec::new();
            for _ in 0..BATCHES_IN_FLIGHT {
                if let Some(batch) = batches.recv().await {
                    ready.push(with_cached_vectors(batch?, &mut cache));
                }
            }
            if ready.is_empty() {
                break;
            }
            let ready = stream::iter(ready.into_iter().map(|batch| self.embed(batch)));
            let ready: Vec<Batch> = ready.buffered(BATCHES_IN_FLIGHT).try_collect().await?;
            for batch in ready {
                self.add(batch, &mut embedded, &mut cache)?;
                done(embedded.labels.len() as u64, self.rows);
            }
        }
        if embedded.labels.len() as u64 != self.rows {
            let message = "the dataset changed during the training";
            return Err(TrainError::Dataset(message.to_owned()));
        }
        Ok(embedded)
    }

    /// Opens the cache of earlier vectors. An error is only logged, because the cache merely saves
    /// time.
    fn open_cache(&self) -> Option<VectorCache> {
        let name = cache::name(self.encoder, self.holds, self.options.truncate);
        // Each account has its own cache. Its size counts towards the account's stored data, and no
        // other account can learn from it.
        let name = format!("{}/{name}", self.caller.0);
        self.cache?.open(&name).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read cached vectors");
            None
        })
    }

    fn add(
        &self,
        batch: Batch,
        embedded: &mut EmbeddedRows,
        cache: &mut Option<VectorCache>,
    ) -> Result<(), TrainError> {
        let mut fresh = Vec::new();
        for ((row, key), vector) in batch.rows.into_iter().zip(batch.keys).zip(batch.vectors) {
            let vector = vector.unwrap_or_default();
            if embedded.width == 0 {
                self.require_room(vector.len())?;
                embedded.width = vector.len();
            }
            if vector.is_empty() || vector.len() != embedded.width {
                let (width, line) = (vector.len(), row.line);
                return Err(TrainError::Dataset(format!(
                    "line {line}: the model returned {width} numbers, but {} for the rows before; training needs a model \
                     whose vectors all have the same length",
                    embedded.width
                )));
            }
            embedded.vectors.extend_from_slice(&vector);
            embedded.labels.push(row.labels);
            embedded.lines.push(row.line);
            fresh.push((key, vector));
        }
        if let Some(kept) = cache {
            fresh.retain(|(key, _)| kept.get(key).is_none());
            if let Err(error) = kept.put(&fresh) {
                tracing::warn!(%error, "cannot cache vectors");
                *cache = None;
            }
        }
        Ok(())
    }

    /// Checks the memory limit. Vectors are in memory twice while rows are selected from them.
    fn require_room(&self, width: usize) -> Result<(), TrainError> {
        let needed = self.rows.saturating_mul(width as u64).saturating_mul(8);
        if needed <= self.memory {
            return Ok(());
        }
        Err(TrainError::Memory {
            rows: self.rows,
            width,
            needed,
            limit: self.memory,
        })
    }

    async fn embed(&self, mut batch: Batch) -> Result<Batch, TrainError> {
        let missing = batch.vectors.iter().enumerate();
        let missing = missing.filter(|(_, vector)| vector.is_none());
        let missing: Vec<usize> = missing.map(|(place, _)| place).collect();
        match self.holds {
            ContentKind::Text if !missing.is_empty() => {
                let vectors = self.embed_texts(&batch.rows, &missing).await?;
                for (place, vector) in missing.into_iter().zip(vectors) {
                    batch.vectors[place] = Some(vector);
                }
            }
            ContentKind::Text => {}
            ContentKind::Image => {
                for place in missing {
                    let vector = self.embed_picture(&batch.rows[place]).await?;
                    batch.vectors[place] = Some(vector);
                }
            }
        }
        Ok(batch)
    }

    async fn embed_texts(
        &self,
        rows: &[DatasetRow],
        missing: &[usize],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let texts: Vec<String> = missing.iter().map(|it| rows[*it].content.clone()).collect();
        let mut config = self.options.predict_config();
        config["truncate"] = self.options.truncate.into();
        let config = config.to_string();
        let mut patience = QueueFullRetry::default();
        let embedded = loop {
            let embedded = self.ask(texts.clone(), &config).await;
            match embedded {
                Err(error) if patience.again(&error).await => {}
                embedded => break embedded,
            }
        };
        let embedded = embedded.map_err(|error| match error {
            CallError::Refused(refusal) => {
                let row = text_index(&refusal).and_then(|text| rows.get(*missing.get(text)?));
                row_error(row.map(|row| row.line), &refusal)
            }
            other => TrainError::Model(other),
        })?;
        Ok(embedded.vectors)
    }

    async fn ask(
        &self,
        texts: Vec<String>,
        config: &str,
    ) -> Result<crate::service::Embedded, CallError> {
        let given = EmbeddingInput::Texts(texts);
        let embedding = self
            .device
            .prepare_embedding(given, Some(config), self.caller);
        let embedding = embedding.await?;
        embedding.run(self.caller, None).await
    }

    async fn embed_picture(&self, row: &DatasetRow) -> Result<Vec<f32>, TrainError> {
        let config = self.options.predict_config().to_string();
        let mut patience = QueueFullRetry::default();
        let embedded = loop {
            let embedding = self
                .device
                .embed_picture(&row.content, &config, self.caller);
            match embedding.await {
                Err(error) if patience.again(&error).await => {}
                embedded => break embedded,
            }
        };
        embedded.map_err(|error| match error {
            CallError::Refused(refusal) => row_error(Some(row.line), &refusal),
            other => TrainError::Model(other),
        })
    }
}

/// Retries requests that were rejected because the queue was full.
#[derive(Default)]
struct QueueFullRetry(u32);

impl QueueFullRetry {
    /// Waits and returns `true` if the request should be retried.
    async fn again(&mut self, error: &CallError) -> bool {
        if !error.is_full() || self.0 == MAX_RETRIES {
            return false;
        }
        self.0 += 1;
        tokio::time::sleep(RETRY_DELAY).await;
        true
    }
}

/// Returns the index of the text that a refusal refers to.
fn text_index(refusal: &Refusal) -> Option<usize> {
    let place = refusal.place.as_deref()?.strip_prefix("$.texts[")?;
    place.strip_suffix(']')?.parse().ok()
}

fn row_error(line: Option<u64>, refusal: &Refusal) -> TrainError {
    let message = &refusal.message;
    TrainError::Dataset(match line {
        Some(line) => format!("line {line}: {message}"),
        None => message.clone(),
    })
}

/// Reads batches on a blocking thread.
fn read(
    source: DatasetReader,
    bounds: DatasetLimits,
) -> mpsc::Receiver<Result<Vec<DatasetRow>, TrainError>> {
    let (sender, receiver) = mpsc::channel(BATCHES_IN_FLIGHT);
    tokio::task::spawn_blocking(move || {
        let wrong = |error: RowError| {
            TrainError::Dataset(match error {
                RowError::Row(fault) | RowError::End(fault) => fault.to_string(),
                RowError::Read(error) => format!("cannot read the dataset: {error}"),
            })
        };
        let rows = match Rows::new(source, bounds) {
            Ok(rows) => rows,
            Err(error) => {
                // The receiver may be gone.
                let _ = sender.blocking_send(Err(wrong(error)));
                return;
            }
        };
        let (mut batch, mut bytes) = (Vec::with_capacity(BATCH_ROWS), 0);
        for row in rows {
            let row = row.map_err(wrong);
            let is_wrong = row.is_err();
            let sent = match row {
                Ok(row) => {
                    bytes += row.content.len();
                    batch.push(row);
                    if batch.len() < BATCH_ROWS && bytes < BATCH_BYTES {
                        continue;
                    }
                    bytes = 0;
                    sender.blocking_send(Ok(std::mem::take(&mut batch)))
                }
                Err(error) => sender.blocking_send(Err(error)),
            };
            if sent.is_err() || is_wrong {
                return;
            }
        }
        if !batch.is_empty() {
            let _ = sender.blocking_send(Ok(batch));
        }
    });
    receiver
}

/// Creates a batch and fills in the cached vectors.
fn with_cached_vectors(rows: Vec<DatasetRow>, cache: &mut Option<VectorCache>) -> Batch {
    let keys: Vec<VectorKey> = rows.iter().map(|row| cache::key(&row.content)).collect();
    let vectors = keys
        .iter()
        .map(|key| cache.as_mut().and_then(|cache| cache.get(key)));
    Batch {
        vectors: vectors.collect(),
        rows,
        keys,
    }
}
