//! What ends by time: answers that expire, records that were kept long enough, blobs without a task.
//!
//! Invariant: it works in small batches and rests between them for longer than they took, so that running
//! traffic goes first; it stops between any two of them and goes on at the next start.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::QueueOptions;
use crate::database::{DatabaseError, Timestamp};
use crate::task::Removed;

/// Tasks in a batch.
const BATCH: usize = 100;

/// Rests are so many times as long as what came before them.
const REST: u32 = 4;

/// How often blobs without a task are looked for.
const ORPHANS: Duration = Duration::from_hours(1);

/// Works until it is aborted.
pub(super) async fn run(options: Arc<QueueOptions>) {
    let mut tick = tokio::time::interval(options.lease / 4);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut orphans_at = Instant::now() + ORPHANS;
    loop {
        tick.tick().await;
        // Records first: their answers go with them.
        if let Some(ttl) = options.record_ttl {
            let purged = in_batches(&options, || {
                options.store.purge(Timestamp::now().before(ttl), BATCH)
            });
            if let Err(error) = purged.await {
                tracing::error!(%error, "old tasks cannot be deleted");
            }
        }
        let swept = in_batches(&options, || options.store.sweep(Timestamp::now(), BATCH));
        if let Err(error) = swept.await {
            tracing::error!(%error, "expired answers cannot be removed");
        }
        if orphans_at <= Instant::now() {
            orphans_at = Instant::now() + ORPHANS;
            options.blobs.sweep_orphans(options.store.as_ref()).await;
        }
    }
}

/// Removes batch after batch until there is no more.
async fn in_batches<F>(
    options: &QueueOptions,
    mut batch: impl FnMut() -> F,
) -> Result<(), DatabaseError>
where
    F: Future<Output = Result<Removed, DatabaseError>>,
{
    let mut count = 0;
    loop {
        let began = Instant::now();
        let removed = batch().await?;
        for lease in &removed.blobs {
            options.blobs.delete_answer(*lease).await;
        }
        count += removed.count;
        if removed.count < BATCH {
            break;
        }
        tokio::time::sleep(began.elapsed() * REST).await;
    }
    if count > 0 {
        tracing::debug!(count, "what was kept long enough is gone");
    }
    Ok(())
}
