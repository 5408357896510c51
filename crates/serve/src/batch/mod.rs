//! Batches: many requests in a file, which run when nothing else does, and their answers in another.
//!
//! The gateway runs them. This module has their records, their store, and the reader of their input.
//!
//! Invariant: a line of an accepted batch gets exactly one outcome, even if the server stops at any
//! time. An outcome is on disk before it counts.

mod input;
mod record;
mod sql;
mod store;

pub(crate) use input::{InputLimits, InputLine, InputLines, LineRequest, check};
pub use record::{
    BatchEndpoint, BatchId, BatchState, FilePurpose, LineFault, LineOutcome, NewBatch, NewFile,
    StoredBatch, StoredFile, StoredFileId,
};
pub(crate) use sql::SqlBatches;
pub use store::{BatchCreation, BatchStore, FileDeletion, FileTotals, ListPage};
