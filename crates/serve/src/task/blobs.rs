//! Blob store for bodies and answers that are too long for a task's record.
//!
//! Invariant: a blob is on disk when the put returns. Reading verifies size and checksum, and fails
//! if they differ.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Name;
use object_store::{GetResult, GetResultPayload, ObjectStore, ObjectStoreExt as _};
use sha2::{Digest, Sha256};

use super::hold::BlobLock;
use super::{Lease, NamedBlob, StoredContent, TaskId, TaskOutcome, TaskStore};
use crate::database::{DatabaseError, DatabaseResult};
use crate::service::{BodyBuffer, BodyReservation};
use pkgtool_base::causes::with_causes;

/// Minimum age of an orphaned blob before it is removed. The task of a younger one may be about to
/// be stored.
const MIN_ORPHAN_AGE: Duration = Duration::from_hours(1);

/// Size of one read, in bytes.
const READ_BYTES: usize = 64 << 10;

/// The blobs of tasks and datasets.
pub struct Blobs {
    pub(super) store: Arc<dyn ObjectStore>,
    /// Directory of the files, if the store is a local directory.
    directory: Option<PathBuf>,
    /// Maximum size of content that is kept in the record, in bytes.
    max_record_bytes: usize,
    hold: Option<BlobLock>,
}

/// Errors of stored content.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BlobError {
    /// It is missing.
    #[error("the stored content is missing")]
    Lost,
    /// Its size or checksum differs.
    #[error("the stored content is corrupt")]
    Corrupt,
    /// The storage failed.
    #[error("storage failed: {0}")]
    Storage(String),
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
            directory: Some(directory.to_owned()),
            hold: Some(BlobLock::of(directory)),
            ..Self::with_store(Arc::new(store.with_fsync(true)))
        })
    }

    /// Uses any object store.
    pub fn with_store(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            directory: None,
            max_record_bytes: 0,
            hold: None,
        }
    }

    /// Keeps content up to this many bytes in the record.
    #[must_use]
    pub fn with_records_of(mut self, bytes: usize) -> Self {
        self.max_record_bytes = bytes;
        self
    }

    /// Returns the path of a blob below the blob directory.
    pub fn path(blob: &NamedBlob) -> String {
        let task = blob.task;
        let name = match blob.attempt {
            None => body_name(task),
            Some(attempt) => answer_name(Lease { task, attempt }),
        };
        name.to_string()
    }

    /// Stores a request body.
    pub async fn put_body(&self, task: TaskId, body: Bytes) -> Result<StoredContent, BlobError> {
        self.put(body_name(task), body).await
    }

    /// Stores an answer.
    pub async fn put_answer(
        &self,
        lease: Lease,
        answer: Bytes,
    ) -> Result<StoredContent, BlobError> {
        self.put(answer_name(lease), answer).await
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
        let found = self.find(&body_name(task), size).await?;
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
                    loading.push(&chunk.map_err(blob_error)?)?;
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
        let found = self.find(&answer_name(lease), size).await?;
        let bytes = found.bytes().await.map_err(blob_error)?;
        let same: [u8; 32] = Sha256::digest(&bytes).into();
        if same == *sha256 {
            Ok(bytes)
        } else {
            Err(BlobError::Corrupt)
        }
    }

    /// Deletes a body, if it exists.
    pub async fn delete_body(&self, task: TaskId) {
        self.delete(&body_name(task)).await;
    }

    /// Deletes an answer, if it exists.
    pub async fn delete_answer(&self, lease: Lease) {
        self.delete(&answer_name(lease)).await;
    }

    /// Deletes blobs that no task needs, once they are old enough, and returns their number. These
    /// are bodies of finished or unknown tasks, and answers of attempts other than the one that
    /// ended the task.
    pub async fn sweep_orphans(&self, tasks: &dyn TaskStore) -> u64 {
        use futures_util::TryStreamExt as _;
        let mut all = self.store.list(None);
        let mut removed = 0_u64;
        loop {
            let next = match all.try_next().await {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "cannot list blobs");
                    break;
                }
            };
            let modified: SystemTime = next.last_modified.into();
            let old = modified.elapsed().is_ok_and(|age| age >= MIN_ORPHAN_AGE);
            if old && !is_needed(tasks, &next.location).await {
                self.delete(&next.location).await;
                removed += 1;
            }
        }
        if let Some(directory) = self.directory.clone() {
            let swept = tokio::task::spawn_blocking(move || {
                Self::sweep_unfinished(&directory, MIN_ORPHAN_AGE);
            });
            if let Err(error) = swept.await {
                tracing::error!(%error, "the sweep of partial uploads failed");
            }
        }
        removed
    }

    async fn put(&self, name: Name, bytes: Bytes) -> Result<StoredContent, BlobError> {
        if bytes.len() <= self.max_record_bytes || StoredContent::fits_inline(&bytes) {
            return Ok(StoredContent::Inline(bytes.to_vec()));
        }
        let content = StoredContent::Blob {
            size: bytes.len() as u64,
            sha256: Sha256::digest(&bytes).into(),
        };
        let put = self.store.put(&name, bytes.into()).await;
        put.map_err(|error| BlobError::Storage(with_causes(&error)))?;
        Ok(content)
    }

    pub(super) async fn find(&self, name: &Name, size: u64) -> Result<GetResult, BlobError> {
        let found = self.store.get(name).await.map_err(blob_error)?;
        // Checked before reading: a file that grew must not fill the memory.
        if found.meta.size == size {
            Ok(found)
        } else {
            Err(BlobError::Corrupt)
        }
    }

    /// Deletes a blob. During a backup the blob stays as an orphan.
    pub(super) async fn delete(&self, name: &Name) {
        let _held = match self.hold.as_ref().map(BlobLock::lock_for_deletion) {
            Some(None) => return,
            Some(Some(Ok(held))) => Some(held),
            Some(Some(Err(error))) => {
                tracing::warn!(%error, blob = %name, "blob not removed: cannot lock it against backups");
                return;
            }
            None => None,
        };
        match self.store.delete(name).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            // The next sweep of orphans finds it again.
            Err(error) => tracing::warn!(%error, blob = %name, "cannot remove a blob"),
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

pub(super) fn blob_error(error: object_store::Error) -> BlobError {
    match error {
        object_store::Error::NotFound { .. } => BlobError::Lost,
        other => BlobError::Storage(with_causes(&other)),
    }
}

/// Returns whether a task still needs a blob; `true` in doubt.
async fn is_needed(tasks: &dyn TaskStore, name: &Name) -> bool {
    let text = name.filename().unwrap_or_default();
    let (id, attempt) = match text.split_once('.') {
        Some((id, attempt)) => (id, attempt.parse::<u32>().ok()),
        None => (text, None),
    };
    let Ok(id) = id.parse::<TaskId>() else {
        // The name does not belong to a task.
        return true;
    };
    match tasks.get(id).await {
        Ok(None) => false,
        Ok(Some(task)) => match attempt {
            None => !task.status.is_final(),
            Some(attempt) => {
                let is_answered = matches!(task.outcome, Some(TaskOutcome::Answer { .. }));
                !task.status.is_final() || is_answered && attempt == task.attempt
            }
        },
        Err(_) => true,
    }
}

/// Returns the folder of a task's blobs. The last characters of an id are random, which spreads
/// blobs evenly.
fn shard_folder(task: TaskId) -> String {
    let text = task.to_string();
    text[text.len() - 2..].to_owned()
}

pub(super) fn body_name(task: TaskId) -> Name {
    Name::from(format!("body/{}/{task}", shard_folder(task)))
}

fn answer_name(lease: Lease) -> Name {
    let (task, attempt) = (lease.task, lease.attempt);
    Name::from(format!("answer/{}/{task}.{attempt}", shard_folder(task)))
}
