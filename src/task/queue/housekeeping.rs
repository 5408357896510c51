//! What ends by time: records that were kept long enough, answers that expire, blobs without a task.
//!
//! Invariant: it stops between any two batches and goes on at the next start.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::QueueOptions;
use crate::task::remove_in_batches;

/// How often blobs without a task are looked for.
const ORPHANS: Duration = Duration::from_hours(1);

/// Works until it is aborted.
pub(super) async fn run(options: Arc<QueueOptions>) {
    let mut tick = tokio::time::interval(options.lease / 4);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut orphans_at = Instant::now() + ORPHANS;
    let (store, blobs) = (&options.store, &options.blobs);
    loop {
        tick.tick().await;
        // Records first: their answers go with them.
        if let Some(ttl) = options.record_ttl {
            let purge = |most| store.purge(options.clock.kept_since(ttl), most);
            match remove_in_batches(blobs, purge).await {
                Ok(0) => {}
                Ok(tasks) => tracing::debug!(tasks, "tasks were kept long enough, and are deleted"),
                Err(error) => tracing::error!(%error, "old tasks cannot be deleted"),
            }
        }
        let sweep = |most| store.sweep(options.clock.present(options.answer_ttl), most);
        if let Err(error) = remove_in_batches(blobs, sweep).await {
            tracing::error!(%error, "expired answers cannot be removed");
        }
        if orphans_at <= Instant::now() {
            orphans_at = Instant::now() + ORPHANS;
            let orphans = blobs.sweep_orphans(store.as_ref()).await;
            if orphans > 0 {
                tracing::info!(blobs = orphans, "blobs without a task were removed");
            }
        }
    }
}
