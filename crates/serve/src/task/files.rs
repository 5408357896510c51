//! Datasets and files of batches in the blob store, named as their records name them.
//!
//! Invariant: a file is complete before its record is stored, and is deleted after its record. At
//! startup, a file without a record comes from an interrupted upload. In a bucket, it may also be
//! an upload in progress of another gateway, so only old files are deleted there.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path as Name;
use object_store::{GetResultPayload, ObjectStore as _};

use super::blob_error::{BlobError, blob_error};
use super::blobs::BlobPlace;
use super::sweep::{cannot_list, is_older};
use super::{Blobs, TaskId, Upload};
use crate::service::BodyReservation;
use crate::train::DatasetReader;
use crate::train::dataset::{ChecksumReader, pieces};

/// Minimum age of a file without a record in a bucket before it is deleted. It is longer than any
/// upload: S3 dates an object by the start of its upload.
const MIN_SHARED_AGE: Duration = Duration::from_hours(48);

/// The kinds of files, each in a folder of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Datasets.
    Dataset,
    /// Requests and answers of batches.
    Batch,
}

impl FileKind {
    fn folder(self) -> &'static str {
        match self {
            Self::Dataset => "dataset",
            Self::Batch => "file",
        }
    }
}

impl Blobs {
    /// Returns a unique name for a new file.
    pub fn file_name(&self, kind: FileKind, id: TaskId) -> String {
        self.names().file(kind.folder(), id)
    }

    /// Starts to store a file. The reservation covers the memory of the upload.
    pub fn upload_file(&self, name: &str, memory: Arc<BodyReservation>) -> Upload {
        self.upload(Name::from(name), memory)
    }

    /// Opens a file. The reader verifies size and checksum when it reaches the end.
    pub async fn open_file(
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

    /// Streams the content of a file.
    pub async fn stream_file(
        &self,
        name: &str,
        size: u64,
    ) -> Result<BoxStream<'static, Result<Bytes, BlobError>>, BlobError> {
        let found = self.find(&Name::from(name), size).await?;
        Ok(found
            .into_stream()
            .map_err(|error| blob_error(&error))
            .boxed())
    }

    /// Deletes a file, if it exists.
    pub async fn delete_file(&self, name: &str) {
        self.delete(&Name::from(name)).await;
    }

    /// Deletes all files of a kind except these. Must be called before the first upload.
    pub async fn sweep_files(&self, kind: FileKind, known: &HashSet<String>) {
        let min_age = match &self.place {
            BlobPlace::Directory { .. } => Duration::ZERO,
            BlobPlace::Bucket(_) => MIN_SHARED_AGE,
        };
        let mut all = self.store.list(Some(&Name::from(kind.folder())));
        loop {
            match all.try_next().await {
                Ok(Some(found)) => {
                    let is_known = known.contains(found.location.as_ref());
                    // A clock that went back must not keep local files.
                    if !is_known && (min_age.is_zero() || is_older(&found, min_age)) {
                        self.delete(&found.location).await;
                    }
                }
                Ok(None) => return,
                Err(error) => return cannot_list(&error),
            }
        }
    }
}
