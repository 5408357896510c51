//! The blobs that the records of a database name: bodies, answers, datasets and files of batches.

use std::sync::Arc;

use object_store::path::Path as Name;

use super::names::BlobNames;
use super::{NamedBlob, Stores, TaskId, TaskStore};
use crate::database::DatabaseResult;

/// Maximum number of blobs of tasks that are listed at once.
const BLOBS_PER_PAGE: usize = 500;

/// A blob that a record names.
pub(super) struct RecordedBlob {
    key: BlobKey,
    /// Size, in bytes.
    pub(super) size: u64,
    /// SHA-256 of the bytes.
    pub(super) sha256: [u8; 32],
}

enum BlobKey {
    /// The name follows from the task.
    OfTask(NamedBlob),
    /// The record has the name.
    File(String),
}

/// Lists the blobs of a database page by page.
pub(super) struct RecordedBlobs<'s> {
    stores: &'s Stores,
    tasks: Arc<dyn TaskStore>,
    after: Option<TaskId>,
    has_files: bool,
}

impl RecordedBlob {
    /// Returns the name of the blob, where the names of tasks' blobs begin like this.
    pub(super) fn name(&self, names: BlobNames) -> Name {
        match &self.key {
            BlobKey::OfTask(blob) => names.blob(blob),
            BlobKey::File(name) => Name::from(name.as_str()),
        }
    }

    fn of_task(blob: NamedBlob) -> Self {
        Self {
            size: blob.size,
            sha256: blob.sha256,
            key: BlobKey::OfTask(blob),
        }
    }
}

impl<'s> RecordedBlobs<'s> {
    /// Starts the list.
    pub(super) async fn of(stores: &'s Stores) -> DatabaseResult<Self> {
        Ok(Self {
            stores,
            tasks: stores.tasks().await?,
            after: None,
            has_files: true,
        })
    }

    /// Returns the next blobs; none at the end.
    pub(super) async fn next_page(&mut self) -> DatabaseResult<Vec<RecordedBlob>> {
        let page = self.tasks.blobs(self.after, BLOBS_PER_PAGE).await?;
        if let Some(last) = page.last() {
            self.after = Some(last.task);
            return Ok(page.into_iter().map(RecordedBlob::of_task).collect());
        }
        if !std::mem::take(&mut self.has_files) {
            return Ok(Vec::new());
        }
        let datasets = self.stores.training().await?.datasets(None).await?;
        let files = self.stores.batches().await?.all_files().await?;
        let datasets = datasets
            .into_iter()
            .map(|it| (it.is.blob, it.is.size, it.is.sha256));
        let files = files
            .into_iter()
            .map(|it| (it.is.blob, it.is.size, it.is.sha256));
        let recorded = datasets
            .chain(files)
            .map(|(name, size, sha256)| RecordedBlob {
                key: BlobKey::File(name),
                size,
                sha256,
            });
        Ok(recorded.collect())
    }
}
