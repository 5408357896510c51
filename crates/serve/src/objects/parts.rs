//! An object that is written part by part.
//!
//! Invariant: the object appears when all parts are written. A dropped upload is aborted as far as
//! the storage can be reached; a lifecycle rule of the bucket removes the rest.

use bytes::Bytes;
use object_store::path::Path as Name;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload};

use super::error::storage_reason;

/// Size of a part of an object, in bytes. S3 accepts no smaller ones, except as the last part.
pub(crate) const OBJECT_PART_BYTES: usize = 5 << 20;

/// A started upload.
pub(crate) struct ObjectParts(Option<Box<dyn MultipartUpload>>);

impl ObjectParts {
    /// Starts an upload.
    pub(crate) async fn begin(store: &dyn ObjectStore, name: &Name) -> object_store::Result<Self> {
        Ok(Self(Some(store.put_multipart(name).await?)))
    }

    /// Writes an object that is in memory.
    pub(crate) async fn put_all(
        store: &dyn ObjectStore,
        name: &Name,
        mut bytes: Bytes,
    ) -> object_store::Result<()> {
        let mut parts = Self::begin(store, name).await?;
        while !bytes.is_empty() {
            let part = bytes.split_to(OBJECT_PART_BYTES.min(bytes.len()));
            parts.put(part).await?;
        }
        parts.complete().await
    }

    /// Writes the next part. Parts are written one after the other, because parts in flight occupy
    /// memory.
    pub(crate) async fn put(&mut self, part: Bytes) -> object_store::Result<()> {
        let Some(parts) = &mut self.0 else {
            return Ok(());
        };
        parts.put_part(PutPayload::from(part)).await
    }

    /// Waits until the whole object is stored.
    pub(crate) async fn complete(mut self) -> object_store::Result<()> {
        if let Some(parts) = &mut self.0 {
            parts.complete().await?;
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
pub(crate) fn is_single_put(bytes: &Bytes) -> bool {
    bytes.len() <= OBJECT_PART_BYTES
}
