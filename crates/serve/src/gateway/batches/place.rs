//! The place of a request of a batch among those that run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A place among the requests of all batches that run, held until it is dropped.
pub(super) struct LinePlace {
    all: Arc<Semaphore>,
    /// Number of requests of its batch that left their places.
    away: Arc<AtomicUsize>,
    held: Option<OwnedSemaphorePermit>,
}

impl LinePlace {
    /// Waits for a place.
    pub(super) async fn take(all: &Arc<Semaphore>, away: &Arc<AtomicUsize>) -> Self {
        Self {
            all: Arc::clone(all),
            away: Arc::clone(away),
            // The semaphore is never closed.
            held: Arc::clone(all).acquire_owned().await.ok(),
        }
    }

    /// Leaves the place to others for a while, and waits for one again.
    pub(super) async fn leave_for(&mut self, pause: Duration) {
        self.held = None;
        self.away.fetch_add(1, Relaxed);
        let _back = BackLater(&self.away);
        tokio::time::sleep(pause).await;
        self.held = Arc::clone(&self.all).acquire_owned().await.ok();
    }
}

/// Counts a request as back when it is dropped.
struct BackLater<'a>(&'a AtomicUsize);

impl Drop for BackLater<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
