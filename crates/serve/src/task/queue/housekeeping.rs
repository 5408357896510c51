//! Periodic cleanup of old task records, expired answers and orphaned blobs.
//!
//! Invariant: cleanup can stop between any two batches and continues at the next start.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::QueueOptions;
use crate::task::{SweepCursor, remove_in_batches};

/// Interval between sweeps for orphaned blobs.
const ORPHAN_SWEEP_INTERVAL: Duration = Duration::from_hours(1);

/// Runs until it is aborted.
pub(super) async fn run(options: Arc<QueueOptions>) {
    let mut tick = tokio::time::interval(options.lease / 4);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut orphans_at = Instant::now() + ORPHAN_SWEEP_INTERVAL;
    let mut cursor = SweepCursor::default();
    let (store, blobs) = (&options.store, &options.blobs);
    loop {
        tick.tick().await;
        // Records are deleted first, because their answers are deleted with them.
        if let Some(ttl) = options.record_ttl {
            let purge = |most| store.purge(options.clock.kept_since(ttl), most);
            match remove_in_batches(blobs, purge).await {
                Ok(0) => {}
                Ok(tasks) => tracing::debug!(tasks, "deleted tasks past their retention"),
                Err(error) => tracing::error!(%error, "cannot delete tasks past their retention"),
            }
        }
        let sweep = |most| store.sweep(options.clock.present(options.answer_ttl), most);
        if let Err(error) = remove_in_batches(blobs, sweep).await {
            tracing::error!(%error, "cannot remove expired answers");
        }
        if orphans_at <= Instant::now() {
            orphans_at = Instant::now() + ORPHAN_SWEEP_INTERVAL;
            let orphans = blobs.sweep_orphans(store.as_ref(), &mut cursor).await;
            if orphans > 0 {
                tracing::info!(blobs = orphans, "removed orphaned blobs");
            }
        }
    }
}
