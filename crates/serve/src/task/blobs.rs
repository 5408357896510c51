//! Blob store for bodies and answers that are too long for a task's record.
//!
//! Invariant: a blob is on disk when the put returns. Reading verifies size and checksum, and fails
//! if they differ.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Name;
use object_store::{GetResult, GetResultPayload, ObjectStore, ObjectStoreExt as _};
use sha2::{Digest, Sha256};

use super::blob_error::{BlobError, blob_error, storage_failed};
use super::hold::BlobLock;
use super::names::BlobNames;
use super::{Lease, StoredContent, TaskId};
use crate::database::{DatabaseError, DatabaseResult};
use crate::objects::{ObjectParts, ObjectStorage, is_single_put, storage_reason};
use crate::service::{BodyBuffer, BodyReservation};

/// Size of one read, in bytes.
const READ_BYTES: usize = 64 << 10;

/// The blobs of tasks and datasets.
pub struct Blobs {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) place: BlobPlace,
    /// Maximum size of content that is kept in the record, in bytes.
    max_record_bytes: usize,
}

/// The place of the blobs.
pub(super) enum BlobPlace {
    /// Files in a local directory.
    Directory {
        path: PathBuf,
        /// Keeps files from being deleted during a backup.
        lock: BlobLock,
    },
    /// Objects in a bucket, which other gateways may share.
    Bucket(Box<ObjectStorage>),
}

impl Blobs {
    /// Opens a local directory, creating it if it is missing.
    pub fn open(directory: &Path) -> DatabaseResult<Self> {
        crate::database::make_directory(directory)?;
        let store = LocalFileSystem::new_with_prefix(directory);
        let store = store.map_err(|error| DatabaseError::ReadOnly {
            path: directory.display().to_string(),
            reason: error.to_string(),
        })?;
        // A task is accepted only when its body survives a power failure.
        Ok(Self {
            store: Arc::new(store.with_fsync(true)),
            place: BlobPlace::Directory {
                path: directory.to_owned(),
                lock: BlobLock::of(directory),
            },
            max_record_bytes: 0,
        })
    }

    /// Stores blobs as objects in a bucket.
    pub fn in_bucket(storage: ObjectStorage) -> Self {
        Self {
            store: Arc::clone(storage.store()),
            place: BlobPlace::Bucket(Box::new(storage)),
            max_record_bytes: 0,
        }
    }

    /// Keeps content up to this many bytes in the record.
    #[must_use]
    pub fn with_records_of(mut self, bytes: usize) -> Self {
        self.max_record_bytes = bytes;
        self
    }

    /// Returns the bucket of the objects; `None` if blobs are local files.
    pub fn bucket(&self) -> Option<&ObjectStorage> {
        match &self.place {
            BlobPlace::Directory { .. } => None,
            BlobPlace::Bucket(storage) => Some(storage),
        }
    }

    pub(super) fn names(&self) -> BlobNames {
        match &self.place {
            BlobPlace::Directory { .. } => BlobNames::ByShard,
            BlobPlace::Bucket(_) => BlobNames::ByDay,
        }
    }

    /// Stores a request body.
    pub async fn put_body(&self, task: TaskId, body: Bytes) -> Result<StoredContent, BlobError> {
        self.put(self.names().body(task), body).await
    }

    /// Stores an answer.
    pub async fn put_answer(
        &self,
        lease: Lease,
        answer: Bytes,
    ) -> Result<StoredContent, BlobError> {
        self.put(self.names().answer(lease), answer).await
    }

    /// Reads a request body into a part of the body memory, which must cover its size.
    pub async fn load_body(
        &self,
        task: TaskId,
        content: &StoredContent,
        holding: BodyReservation,
    ) -> Result<(Bytes, Arc<BodyReservation>), BlobError> {
        let (size, sha256) = match content {
            StoredContent::Inline(bytes) => {
                let holding = Arc::new(holding);
                return Ok((holding.keep(bytes.clone()), holding));
            }
            StoredContent::Blob { size, sha256 } => (*size, *sha256),
        };
        let found = self.find(&self.names().body(task), size).await?;
        let most = usize::try_from(size).map_err(|_| BlobError::Corrupt)?;
        let mut loading = Loading {
            buffer: BodyBuffer::covered(holding, most),
            hash: Sha256::new(),
        };
        match found.payload {
            GetResultPayload::File(file, _) => {
                let read = tokio::task::spawn_blocking(move || loading.read(file));
                let read = read.await;
                loading = read.map_err(|error| BlobError::Storage(error.to_string()))??;
            }
            GetResultPayload::Stream(mut chunks) => {
                while let Some(chunk) = chunks.next().await {
                    loading.push(&chunk.map_err(|error| blob_error(&error))?)?;
                }
            }
        }
        let same: [u8; 32] = loading.hash.finalize().into();
        if same == sha256 {
            Ok(loading.buffer.finish())
        } else {
            Err(BlobError::Corrupt)
        }
    }

    /// Reads an answer.
    pub async fn answer(&self, lease: Lease, content: &StoredContent) -> Result<Bytes, BlobError> {
        let (size, sha256) = match content {
            StoredContent::Inline(bytes) => return Ok(Bytes::copy_from_slice(bytes)),
            StoredContent::Blob { size, sha256 } => (*size, sha256),
        };
        let found = self.find(&self.names().answer(lease), size).await?;
        let bytes = found.bytes().await.map_err(|error| blob_error(&error))?;
        let same: [u8; 32] = Sha256::digest(&bytes).into();
        if same == *sha256 {
            Ok(bytes)
        } else {
            Err(BlobError::Corrupt)
        }
    }

    /// Deletes a body, if it exists.
    pub async fn delete_body(&self, task: TaskId) {
        self.delete(&self.names().body(task)).await;
    }

    /// Deletes an answer, if it exists.
    pub async fn delete_answer(&self, lease: Lease) {
        self.delete(&self.names().answer(lease)).await;
    }

    async fn put(&self, name: Name, bytes: Bytes) -> Result<StoredContent, BlobError> {
        if bytes.len() <= self.max_record_bytes || StoredContent::fits_inline(&bytes) {
            return Ok(StoredContent::Inline(bytes.to_vec()));
        }
        let content = StoredContent::Blob {
            size: bytes.len() as u64,
            sha256: Sha256::digest(&bytes).into(),
        };
        match &self.place {
            BlobPlace::Bucket(_) if !is_single_put(&bytes) => {
                let put = ObjectParts::put_all(&*self.store, &name, bytes).await;
                put.map_err(|error| storage_failed(&error))?;
            }
            _ => {
                let put = self.store.put(&name, bytes.into()).await;
                put.map_err(|error| storage_failed(&error))?;
            }
        }
        Ok(content)
    }

    pub(super) async fn find(&self, name: &Name, size: u64) -> Result<GetResult, BlobError> {
        let found = self
            .store
            .get(name)
            .await
            .map_err(|error| blob_error(&error))?;
        // Checked before reading: a file that grew must not fill the memory.
        if found.meta.size == size {
            Ok(found)
        } else {
            Err(BlobError::Corrupt)
        }
    }

    /// Deletes a blob. During a backup the blob stays as an orphan.
    pub(super) async fn delete(&self, name: &Name) {
        let _held = match &self.place {
            BlobPlace::Bucket(_) => None,
            BlobPlace::Directory { lock, .. } => match lock.lock_for_deletion() {
                None => return,
                Some(Ok(held)) => Some(held),
                Some(Err(error)) => {
                    tracing::warn!(%error, blob = %name, "blob not removed: cannot lock it against backups");
                    return;
                }
            },
        };
        match self.store.delete(name).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            // The next sweep of orphans finds it again.
            Err(error) => {
                let error = storage_reason(&error);
                tracing::warn!(%error, blob = %name, "cannot remove a blob");
            }
        }
    }
}

impl fmt::Debug for Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blobs({})", self.store)
    }
}

/// A body that is being read into memory.
struct Loading {
    buffer: BodyBuffer,
    hash: Sha256,
}

impl Loading {
    fn read(mut self, mut file: File) -> Result<Self, BlobError> {
        let mut chunk = vec![0; READ_BYTES];
        loop {
            let read = file.read(&mut chunk);
            let read = read.map_err(|error| BlobError::Storage(error.to_string()))?;
            if read == 0 {
                return Ok(self);
            }
            self.push(&chunk[..read])?;
        }
    }

    fn push(&mut self, chunk: &[u8]) -> Result<(), BlobError> {
        self.hash.update(chunk);
        let pushed = self.buffer.push(chunk);
        pushed.map_err(|error| BlobError::Storage(error.to_string()))
    }
}
