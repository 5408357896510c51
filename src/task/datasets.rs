//! Datasets in the blob store, by the names that their records have.
//!
//! Invariant: a dataset is there whole when its record is stored, and goes after its record; what has no record
//! when the server starts is of an upload that was cut off.

use std::collections::HashSet;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path as Name;
use object_store::{GetResultPayload, ObjectStore as _};

use super::blobs::fault;
use super::{BlobError, Blobs, TaskId, Upload};
use crate::train::Source;
use crate::train::dataset::{Verified, pieces};

/// Where they are.
const PREFIX: &str = "dataset";

impl Blobs {
    /// A name that no other dataset has.
    pub fn dataset_name(id: TaskId) -> String {
        let id = id.to_string();
        // No task's: whoever looks for what is left of tasks passes over it.
        format!("{PREFIX}/{}/d-{id}", &id[id.len() - 2..])
    }

    /// Starts to store a dataset.
    pub async fn upload_dataset(&self, name: &str) -> Result<Upload, BlobError> {
        self.upload(&Name::from(name)).await
    }

    /// Opens a dataset. Its reader finds out at the end whether it is what was stored.
    pub async fn open_dataset(
        &self,
        name: &str,
        size: u64,
        sha256: [u8; 32],
    ) -> Result<Source, BlobError> {
        let found = self.find(&Name::from(name), size).await?;
        match found.payload {
            GetResultPayload::File(file, _) => Ok(Box::new(Verified::new(file, sha256))),
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
                Ok(Box::new(Verified::new(reader, sha256)))
            }
        }
    }

    /// The content of a dataset as it is read.
    pub async fn stream_dataset(
        &self,
        name: &str,
        size: u64,
    ) -> Result<BoxStream<'static, Result<Bytes, BlobError>>, BlobError> {
        let found = self.find(&Name::from(name), size).await?;
        Ok(found.into_stream().map_err(fault).boxed())
    }

    /// Removes a dataset, if it is there.
    pub async fn delete_dataset(&self, name: &str) {
        self.delete(&Name::from(name)).await;
    }

    /// Removes datasets that are not among these. Called before any is uploaded.
    pub async fn sweep_datasets(&self, known: &HashSet<String>) {
        let mut all = self.store.list(Some(&Name::from(PREFIX)));
        loop {
            match all.try_next().await {
                Ok(Some(found)) if known.contains(found.location.as_ref()) => {}
                Ok(Some(found)) => self.delete(&found.location).await,
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "datasets cannot be listed");
                    return;
                }
            }
        }
    }
}
