//! Removing many records without harm to running traffic.
//!
//! Invariant: a batch is small, what follows it rests for longer than it took, and a blob goes after the
//! record that named it.

use std::time::{Duration, Instant};

use super::{Blobs, Removed};
use crate::database::DatabaseError;

/// Records in a batch.
const BATCH: usize = 100;

/// Rests are so many times as long as what came before them.
const REST: u32 = 4;

/// Longest rest: a batch that had to wait for others needs none in proportion.
const LONGEST: Duration = Duration::from_millis(100);

/// Removes batch after batch until there is no more, and gives how many records that were. `batch` removes
/// as many as it is told, in one move of the store.
pub async fn remove_in_batches<F>(
    blobs: &Blobs,
    mut batch: impl FnMut(usize) -> F,
) -> Result<u64, DatabaseError>
where
    F: Future<Output = Result<Removed, DatabaseError>>,
{
    let mut count = 0;
    loop {
        let began = Instant::now();
        let removed = batch(BATCH).await?;
        for lease in &removed.blobs {
            blobs.delete_answer(*lease).await;
        }
        count += removed.count as u64;
        if removed.count < BATCH {
            return Ok(count);
        }
        tokio::time::sleep((began.elapsed() * REST).min(LONGEST)).await;
    }
}
