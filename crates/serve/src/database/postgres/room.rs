//! Whether the database's disk has room.
//!
//! Invariant: after a change found no room, the disk counts as full until a probe found some. Small changes may succeed on
//! a full disk, in the pages that are there, and do not show that there is room.

use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::Transaction;
use tokio_postgres::Error as Fault;

use crate::database::{DatabaseError, DatabaseResult};

/// True if a change found no room, and no probe has found some since.
#[derive(Debug, Default)]
pub(super) struct DiskRoom(AtomicBool);

impl DiskRoom {
    /// Learns from the result of a piece of work, and returns it.
    pub(super) fn learn<T>(&self, done: DatabaseResult<T>) -> DatabaseResult<T> {
        if let Err(DatabaseError::Full { .. }) = done {
            self.0.store(true, Ordering::Release);
        }
        done
    }

    /// Returns whether the disk counts as full.
    pub(super) fn is_full(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// A probe found room.
    pub(super) fn was_found(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Takes room, and gives it back with the transaction's end.
pub(super) async fn probe(transaction: &Transaction<'_>) -> Result<(), Fault> {
    let sql = "SAVEPOINT room; CREATE TABLE pkgtool_room AS SELECT 1 AS page; ROLLBACK TO room";
    transaction.batch_execute(sql).await
}
