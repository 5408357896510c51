//! Copies bodies, answers, datasets and files of batches to another place.
//!
//! Invariant: an object that is there already, with the right size, is not copied again. Every copied object has the
//! checksum of its record.

use futures_util::TryStreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::path::Path as Name;

use super::transferred::{TransferError, Transferred};
use super::{BlobError, Blobs, Lease, NamedBlob, StoredContent, Stores};
use crate::account::AccountId;
use crate::service::BodyMemory;

/// Number of blobs that are listed at once.
const BLOBS_PER_PAGE: usize = 500;

/// The account that the memory of a copy counts for: nobody's.
const NOBODY: AccountId = AccountId(0);

/// An object to copy.
struct ObjectCopy {
    from: Name,
    into: Name,
    size: u64,
    sha256: [u8; 32],
}

/// Copies all objects that records name.
pub(super) async fn copy_objects(
    stores: &Stores,
    places: (&Blobs, &Blobs),
    done: &mut Transferred,
) -> Result<(), TransferError> {
    let tasks = stores.tasks().await?;
    let mut after = None;
    loop {
        let page = tasks.blobs(after, BLOBS_PER_PAGE).await?;
        let Some(last) = page.last() else {
            break;
        };
        after = Some(last.task);
        for blob in &page {
            copy(&of_task(blob, places), places, done).await?;
        }
    }
    let datasets = stores.training().await?.datasets(None).await?;
    let files = stores.batches().await?.all_files().await?;
    let datasets = datasets
        .into_iter()
        .map(|it| (it.is.blob, it.is.size, it.is.sha256));
    let files = files
        .into_iter()
        .map(|it| (it.is.blob, it.is.size, it.is.sha256));
    for (name, size, sha256) in datasets.chain(files) {
        let name = Name::from(name);
        let object = ObjectCopy {
            from: name.clone(),
            into: name,
            size,
            sha256,
        };
        copy(&object, places, done).await?;
    }
    Ok(())
}

fn of_task(blob: &NamedBlob, (from, into): (&Blobs, &Blobs)) -> ObjectCopy {
    let name = |blobs: &Blobs| match blob.attempt {
        None => blobs.names().body(blob.task),
        Some(attempt) => blobs.names().answer(Lease {
            task: blob.task,
            attempt,
        }),
    };
    ObjectCopy {
        from: name(from),
        into: name(into),
        size: blob.size,
        sha256: blob.sha256,
    }
}

async fn copy(
    object: &ObjectCopy,
    (from, into): (&Blobs, &Blobs),
    done: &mut Transferred,
) -> Result<(), TransferError> {
    if let Ok(found) = into.store.head(&object.into).await
        && found.size == object.size
    {
        done.present += 1;
        return Ok(());
    }
    let fault = |error| TransferError::Object {
        name: object.into.to_string(),
        error,
    };
    match copy_content(object, (from, into)).await {
        Ok(true) => {
            done.objects += 1;
            done.object_bytes += object.size;
        }
        Ok(false) => done.missing.push(object.from.to_string()),
        Err(error) => return Err(fault(error)),
    }
    Ok(())
}

/// Copies the content of an object. Returns `false` if it is missing or damaged.
async fn copy_content(
    object: &ObjectCopy,
    (from, into): (&Blobs, &Blobs),
) -> Result<bool, BlobError> {
    let found = match from.find(&object.from, object.size).await {
        Ok(found) => found,
        Err(BlobError::Lost | BlobError::Corrupt) => return Ok(false),
        Err(error) => return Err(error),
    };
    let memory = BodyMemory::new(into.upload_memory());
    let memory = memory.wait(NOBODY, into.upload_memory()).await;
    let mut upload = into.upload(object.into.clone(), memory.into());
    let mut pieces = found.into_stream();
    while let Some(piece) = pieces
        .try_next()
        .await
        .map_err(|error| BlobError::Storage(error.to_string()))?
    {
        upload.push(piece).await?;
    }
    let stored = upload.finish().await?;
    let wanted = StoredContent::Blob {
        size: object.size,
        sha256: object.sha256,
    };
    if stored == wanted {
        return Ok(true);
    }
    into.delete(&object.into).await;
    Ok(false)
}
