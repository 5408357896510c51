//! Streams a request body into the blob store, piece by piece as it arrives.
//!
//! Invariant: at most one piece of a body is in memory. The blob appears under its name only when
//! all of it is on disk. Dropping an upload removes its partial file; after a crash
//! [`Blobs::sweep_unfinished`] removes it.

use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use object_store::MultipartUpload;
use object_store::path::Path as Name;
use object_store::{ObjectStoreExt as _, PutPayload};
use sha2::{Digest, Sha256};

use super::blobs::body_name;
use super::{BlobError, Blobs, StoredContent, TaskId};
use pkgtool_base::causes::with_causes;

/// Size of one write, in bytes.
const PIECE_BYTES: usize = Upload::MEMORY;

/// A blob that is being uploaded.
pub struct Upload {
    parts: Box<dyn MultipartUpload>,
    piece: BytesMut,
    hash: Sha256,
    size: u64,
}

impl Blobs {
    /// Starts to store a request body of unknown size.
    pub async fn upload_body(&self, task: TaskId) -> Result<Upload, BlobError> {
        self.upload(&body_name(task)).await
    }

    /// Starts to store a blob under this name.
    pub(super) async fn upload(&self, name: &Name) -> Result<Upload, BlobError> {
        let parts = self.store.put_multipart(name).await;
        Ok(Upload {
            parts: parts.map_err(|error| BlobError::Storage(with_causes(&error)))?,
            piece: BytesMut::new(),
            hash: Sha256::new(),
            size: 0,
        })
    }

    /// Removes partial files of crashed processes that are older than any upload in progress. The
    /// object store hides such files from its listings.
    pub fn sweep_unfinished(directory: &Path, age: Duration) {
        let folders = |path: &Path| {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let kinds = folders(directory).into_iter();
        let files = kinds
            .flat_map(|kind| folders(&kind))
            .flat_map(|shard| folders(&shard));
        for file in files.filter(|file| is_unfinished(file)) {
            let modified = file.metadata().and_then(|found| found.modified());
            if modified.is_ok_and(|at| at.elapsed().is_ok_and(|old| old >= age))
                && let Err(error) = std::fs::remove_file(&file)
            {
                tracing::warn!(%error, path = %file.display(), "a partial upload cannot be removed");
            }
        }
    }
}

impl Upload {
    /// Memory that an upload uses, in bytes.
    pub const MEMORY: usize = 256 << 10;

    /// Appends bytes.
    pub async fn push(&mut self, mut bytes: Bytes) -> Result<(), BlobError> {
        self.hash.update(&bytes);
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = PIECE_BYTES - self.piece.len();
            if self.piece.is_empty() {
                self.piece.reserve(PIECE_BYTES);
            }
            self.piece
                .extend_from_slice(&bytes.split_to(room.min(bytes.len())));
            if self.piece.len() == PIECE_BYTES {
                self.write().await?;
            }
        }
        Ok(())
    }

    /// Finishes the upload: waits until the whole blob is on disk.
    pub async fn finish(mut self) -> Result<StoredContent, BlobError> {
        if !self.piece.is_empty() {
            self.write().await?;
        }
        let completed = self.parts.complete().await;
        completed.map_err(|error| BlobError::Storage(with_causes(&error)))?;
        Ok(StoredContent::Blob {
            size: self.size,
            sha256: self.hash.finalize().into(),
        })
    }

    async fn write(&mut self) -> Result<(), BlobError> {
        let piece = PutPayload::from(self.piece.split().freeze());
        // Pieces are written one after the other, because pieces in flight occupy memory.
        let written = self.parts.put_part(piece).await;
        written.map_err(|error| BlobError::Storage(with_causes(&error)))
    }
}

/// Returns whether the object store created this file for an upload: its name ends with `#` and a
/// number.
fn is_unfinished(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.rsplit_once('#'));
    number.is_some_and(|(_, number)| {
        !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit())
    })
}
