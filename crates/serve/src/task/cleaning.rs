//! Batched removal of many records, throttled so that it does not slow down running traffic.
//!
//! Invariant: batches are small, the pause after a batch is proportional to its duration, and a
//! blob is deleted after the record that names it.

use std::time::{Duration, Instant};

use super::{Blobs, RemovedTasks};
use crate::database::DatabaseResult;

/// Number of records in a batch.
const BATCH_RECORDS: usize = 100;

/// A pause lasts this many times as long as the batch before it.
const PAUSE_FACTOR: u32 = 4;

/// Longest pause. A batch may be slow because it waited for others; its pause need not grow with
/// that.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Removes records in batches until none remain, and returns their number. `batch` removes up to
/// the given number of records in one store operation.
pub async fn remove_in_batches<F>(
    blobs: &Blobs,
    mut batch: impl FnMut(usize) -> F,
) -> DatabaseResult<u64>
where
    F: Future<Output = DatabaseResult<RemovedTasks>>,
{
    let mut count = 0;
    loop {
        let began = Instant::now();
        let removed = batch(BATCH_RECORDS).await?;
        for lease in &removed.blobs {
            blobs.delete_answer(*lease).await;
        }
        count += removed.count as u64;
        if removed.count < BATCH_RECORDS {
            return Ok(count);
        }
        tokio::time::sleep((began.elapsed() * PAUSE_FACTOR).min(MAX_PAUSE)).await;
    }
}
