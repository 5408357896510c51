//! An object that is written part by part.
//!
//! Invariant: the object appears when all parts are written. A dropped upload is aborted as far as
//! the storage can be reached; a lifecycle rule of the bucket removes the rest.

use bytes::Bytes;
use object_store::path::Path as Name;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload};

use super::blob_error::{BlobError, storage_failed};
use super::object_error::storage_reason;

/// Size of a part of an object, in bytes. S3 accepts no smaller ones, except as the last part.
pub(super) const OBJECT_PART_BYTES: usize = 5 << 20;

/// A started upload.
pub(super) struct ObjectParts(Option<Box<dyn MultipartUpload>>);

impl ObjectParts {
    /// Starts an upload.
    pub(super) async fn begin(store: &dyn ObjectStore, name: &Name) -> Result<Self, BlobError> {
        let parts = store.put_multipart(name).await;
        Ok(Self(Some(parts.map_err(|error| storage_failed(&error))?)))
    }

    /// Writes an object that is in memory.
    pub(super) async fn put_all(
        store: &dyn ObjectStore,
        name: &Name,
        mut bytes: Bytes,
    ) -> Result<(), BlobError> {
        let mut parts = Self::begin(store, name).await?;
        while !bytes.is_empty() {
            let part = bytes.split_to(OBJECT_PART_BYTES.min(bytes.len()));
            parts.put(part).await?;
        }
        parts.complete().await
    }

    /// Writes the next part. Parts are written one after the other, because parts in flight occupy
    /// memory.
    pub(super) async fn put(&mut self, part: Bytes) -> Result<(), BlobError> {
        let Some(parts) = &mut self.0 else {
            return Ok(());
        };
        let written = parts.put_part(PutPayload::from(part)).await;
        written.map_err(|error| storage_failed(&error))
    }

    /// Waits until the whole object is stored.
    pub(super) async fn complete(mut self) -> Result<(), BlobError> {
        if let Some(parts) = &mut self.0 {
            let completed = parts.complete().await;
            completed.map_err(|error| storage_failed(&error))?;
        }
        self.0 = None;
        Ok(())
    }
}

impl Drop for ObjectParts {
    fn drop(&mut self) {
        let (Some(mut parts), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        runtime.spawn(async move {
            if let Err(error) = parts.abort().await {
                let error = storage_reason(&error);
                tracing::warn!(%error, "cannot abort an upload");
            }
        });
    }
}

/// Returns whether an object is small enough for one request.
pub(super) fn is_single_put(bytes: &Bytes) -> bool {
    bytes.len() <= OBJECT_PART_BYTES
}
