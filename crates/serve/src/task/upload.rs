//! Streams a request body into the blob store, piece by piece as it arrives.
//!
//! Invariant: at most one piece of a body is in memory, and the upload holds a reservation for it.
//! The blob appears under its name only when all of it is stored. A blob of at most one piece is
//! stored in one request. Dropping an upload removes its partial file or its parts.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt as _};
use sha2::{Digest, Sha256};

use super::blob_error::{BlobError, storage_failed};
use super::blobs::BlobPlace;
use super::{Blobs, StoredContent, TaskId};
use crate::objects::{OBJECT_PART_BYTES, ObjectParts};
use crate::service::BodyReservation;

/// Size of one write to a local file, in bytes.
const FILE_PIECE_BYTES: usize = 256 << 10;

/// A blob that is being uploaded.
pub struct Upload {
    store: Arc<dyn ObjectStore>,
    name: Name,
    /// The parts that are stored; `None` before the first piece is full.
    parts: Option<ObjectParts>,
    piece: BytesMut,
    piece_bytes: usize,
    hash: Sha256,
    size: u64,
    _memory: Arc<BodyReservation>,
}

impl Blobs {
    /// Starts to store a request body of unknown size. The reservation covers the memory of the
    /// upload.
    pub fn upload_body(&self, task: TaskId, memory: Arc<BodyReservation>) -> Upload {
        self.upload(self.names().body(task), memory)
    }

    /// Starts to store a blob under this name.
    pub(super) fn upload(&self, name: Name, memory: Arc<BodyReservation>) -> Upload {
        Upload {
            store: Arc::clone(&self.store),
            name,
            parts: None,
            piece: BytesMut::new(),
            piece_bytes: self.upload_memory(),
            hash: Sha256::new(),
            size: 0,
            _memory: memory,
        }
    }

    /// Returns the memory that an upload uses, in bytes.
    pub fn upload_memory(&self) -> usize {
        match &self.place {
            BlobPlace::Directory { .. } => FILE_PIECE_BYTES,
            BlobPlace::Bucket(_) => OBJECT_PART_BYTES,
        }
    }
}

impl Upload {
    /// Appends bytes.
    pub async fn push(&mut self, mut bytes: Bytes) -> Result<(), BlobError> {
        self.hash.update(&bytes);
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.piece.len() == self.piece_bytes {
                self.write_part().await?;
            }
            if self.piece.is_empty() {
                // Untouched pages occupy no memory.
                self.piece.reserve(self.piece_bytes);
            }
            let room = self.piece_bytes - self.piece.len();
            self.piece
                .extend_from_slice(&bytes.split_to(room.min(bytes.len())));
        }
        Ok(())
    }

    /// Finishes the upload: waits until the whole blob is stored.
    pub async fn finish(mut self) -> Result<StoredContent, BlobError> {
        if self.parts.is_some() && !self.piece.is_empty() {
            self.write_part().await?;
        }
        if let Some(parts) = self.parts.take() {
            let completed = parts.complete().await;
            completed.map_err(|error| storage_failed(&error))?;
        } else {
            let whole = self.piece.split().freeze();
            let put = self.store.put(&self.name, whole.into()).await;
            put.map_err(|error| storage_failed(&error))?;
        }
        Ok(StoredContent::Blob {
            size: self.size,
            sha256: self.hash.finalize().into(),
        })
    }

    async fn write_part(&mut self) -> Result<(), BlobError> {
        let parts = match &mut self.parts {
            Some(parts) => parts,
            none => {
                let begun = ObjectParts::begin(&*self.store, &self.name).await;
                none.insert(begun.map_err(|error| storage_failed(&error))?)
            }
        };
        let put = parts.put(self.piece.split().freeze()).await;
        put.map_err(|error| storage_failed(&error))
    }
}
