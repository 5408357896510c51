//! Copies bodies, answers, datasets and files of batches to another place.
//!
//! Invariant: an object that is there already, with the right size, is not copied again. Every copied object has the
//! checksum of its record.

use futures_util::StreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::path::Path as Name;

use super::blob_error::storage_failed;
use super::recorded::{RecordedBlob, RecordedBlobs};
use super::transferred::{TransferError, Transferred};
use super::{BlobError, Blobs, StoredContent, Stores};
use crate::account::AccountId;
use crate::service::BodyMemory;

/// The account that the memory of a copy counts for: nobody's.
const NOBODY: AccountId = AccountId(0);

/// Copies all objects that records name.
pub(super) async fn copy_objects(
    stores: &Stores,
    places: (&Blobs, &Blobs),
    done: &mut Transferred,
) -> Result<(), TransferError> {
    let mut blobs = RecordedBlobs::of(stores).await?;
    loop {
        let page = blobs.next_page().await?;
        if page.is_empty() {
            return Ok(());
        }
        for blob in &page {
            copy(blob, places, done).await?;
        }
    }
}

async fn copy(
    blob: &RecordedBlob,
    (from, into): (&Blobs, &Blobs),
    done: &mut Transferred,
) -> Result<(), TransferError> {
    let (source, target) = (blob.name(from.names()), blob.name(into.names()));
    if let Ok(found) = into.store.head(&target).await
        && found.size == blob.size
    {
        done.present += 1;
        return Ok(());
    }
    let name = target.to_string();
    match copy_content(blob, (from, &source), (into, target)).await {
        Ok(true) => {
            done.objects += 1;
            done.object_bytes += blob.size;
        }
        Ok(false) => done.missing.push(source.to_string()),
        Err(error) => return Err(TransferError::Object { name, error }),
    }
    Ok(())
}

/// Copies the content of an object. Returns `false` if it is missing or damaged.
async fn copy_content(
    blob: &RecordedBlob,
    (from, source): (&Blobs, &Name),
    (into, target): (&Blobs, Name),
) -> Result<bool, BlobError> {
    let found = match from.find(source, blob.size).await {
        Ok(found) => found,
        Err(BlobError::Lost | BlobError::Corrupt) => return Ok(false),
        Err(error) => return Err(error),
    };
    let memory = BodyMemory::new(into.upload_memory());
    let memory = memory.wait(NOBODY, into.upload_memory()).await;
    let mut upload = into.upload(target.clone(), memory.into());
    let mut pieces = found.into_stream();
    while let Some(piece) = pieces.next().await {
        upload
            .push(piece.map_err(|error| storage_failed(&error))?)
            .await?;
    }
    let stored = upload.finish().await?;
    let wanted = StoredContent::Blob {
        size: blob.size,
        sha256: blob.sha256,
    };
    if stored == wanted {
        return Ok(true);
    }
    into.delete(&target).await;
    Ok(false)
}
