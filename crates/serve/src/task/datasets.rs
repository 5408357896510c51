//! Datasets in the blob store, named as their records name them.
//!
//! Invariant: a dataset is complete before its record is stored, and is deleted after its record.
//! At startup, a dataset without a record comes from an interrupted upload.

use std::collections::HashSet;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path as Name;
use object_store::{GetResultPayload, ObjectStore as _};

use super::blobs::blob_error;
use super::{BlobError, Blobs, TaskId, Upload};
use crate::train::DatasetReader;
use crate::train::dataset::{ChecksumReader, pieces};

/// Folder of the datasets in the blob store.
const DATASET_FOLDER: &str = "dataset";

impl Blobs {
    /// Returns a unique name for a new dataset.
    pub fn dataset_name(id: TaskId) -> String {
        let id = id.to_string();
        // The prefix `d-` differs from all task names, so the sweep of orphaned task blobs skips
        // datasets.
        format!("{DATASET_FOLDER}/{}/d-{id}", &id[id.len() - 2..])
    }

    /// Starts to store a dataset.
    pub async fn upload_dataset(&self, name: &str) -> Result<Upload, BlobError> {
        self.upload(&Name::from(name)).await
    }

    /// Opens a dataset. The reader verifies size and checksum when it reaches the end.
    pub async fn open_dataset(
        &self,
        name: &str,
        size: u64,
        sha256: [u8; 32],
    ) -> Result<DatasetReader, BlobError> {
        let found = self.find(&Name::from(name), size).await?;
        match found.payload {
            GetResultPayload::File(file, _) => Ok(Box::new(ChecksumReader::new(file, sha256))),
            GetResultPayload::Stream(mut chunks) => {
                let (sender, reader) = pieces();
                tokio::spawn(async move {
                    while let Some(chunk) = chunks.next().await {
                        if sender
                            .send(chunk.map_err(std::io::Error::other))
                            .await
                            .is_err()
                        {
                            return;
                        }
                    }
                });
                Ok(Box::new(ChecksumReader::new(reader, sha256)))
            }
        }
    }

    /// Streams the content of a dataset.
    pub async fn stream_dataset(
        &self,
        name: &str,
        size: u64,
    ) -> Result<BoxStream<'static, Result<Bytes, BlobError>>, BlobError> {
        let found = self.find(&Name::from(name), size).await?;
        Ok(found.into_stream().map_err(blob_error).boxed())
    }

    /// Deletes a dataset, if it exists.
    pub async fn delete_dataset(&self, name: &str) {
        self.delete(&Name::from(name)).await;
    }

    /// Deletes all datasets except these. Must be called before the first upload.
    pub async fn sweep_datasets(&self, known: &HashSet<String>) {
        let mut all = self.store.list(Some(&Name::from(DATASET_FOLDER)));
        loop {
            match all.try_next().await {
                Ok(Some(found)) if known.contains(found.location.as_ref()) => {}
                Ok(Some(found)) => self.delete(&found.location).await,
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "cannot list datasets");
                    return;
                }
            }
        }
    }
}
