//! Counts the usage of services by accounts in memory, and stores it in batches.
//!
//! Invariant: counting takes one short lock and never waits for the store. Counts are stored within
//! half a second and when the server stops. Counts that could not be stored are kept and retried.
//! Reports include the latest counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::cpu::{CpuCounts, CpuUsed};
use super::record::{AccountId, Counted, Usage, UsageKey};
use super::store::AccountStore;
use crate::database::{DatabaseResult, Day, RetentionClock, Timestamp};

/// Interval between writes to the store.
const STORE_INTERVAL: Duration = Duration::from_millis(500);

/// Interval between deletions of expired days.
const DELETE_INTERVAL: Duration = Duration::from_hours(1);

/// Maximum number of rows deleted at once, and the pause before the next ones.
const MAX_DELETED_ROWS: usize = 500;
const DELETE_PAUSE: Duration = Duration::from_millis(20);

/// Counts the usage of accounts.
#[derive(Debug)]
pub struct UsageCounts {
    counts: Arc<PendingUsage>,
    writer: AbortHandle,
}

struct PendingUsage {
    store: Arc<dyn AccountStore>,
    /// Counts that are not stored yet.
    pending: Mutex<HashMap<UsageKey, Counted>>,
    /// Locked while pending counts are stored.
    storing: tokio::sync::Mutex<()>,
    clock: Arc<RetentionClock>,
    cpu: Arc<CpuCounts>,
}

impl UsageCounts {
    /// Starts to count into a store that retains `keep_days` days. Must be called on a tokio
    /// runtime.
    pub fn start(
        store: Arc<dyn AccountStore>,
        keep_days: u32,
        clock: Arc<RetentionClock>,
        cpu: Arc<CpuCounts>,
    ) -> Self {
        let counts = Arc::new(PendingUsage {
            store,
            pending: Mutex::default(),
            storing: tokio::sync::Mutex::default(),
            clock,
            cpu,
        });
        let writer = tokio::spawn(write(Arc::clone(&counts), keep_days));
        Self {
            counts,
            writer: writer.abort_handle(),
        }
    }

    /// Adds usage.
    pub fn count(&self, key: UsageKey, used: Counted) {
        self.counts.pending().entry(key).or_default().add(used);
    }

    /// Returns an account's CPU time on each day of a period, first and last day included.
    pub async fn cpu_of(
        &self,
        account: AccountId,
        from: Day,
        to: Day,
    ) -> DatabaseResult<Vec<CpuUsed>> {
        self.counts.store_pending().await?;
        self.counts.store.cpu(Some(account), from, to).await
    }

    /// Stores all pending counts.
    pub async fn store(&self) -> DatabaseResult<()> {
        self.counts.store_pending().await
    }

    /// Returns the usage of an account in a period, first and last day included, ordered by day,
    /// owner and service.
    pub async fn of(&self, account: AccountId, from: Day, to: Day) -> DatabaseResult<Vec<Usage>> {
        // Stored first: stored usage has names, and nothing is counted twice.
        self.counts.store_pending().await?;
        self.counts.store.usage(account, from, to).await
    }
}

impl Drop for UsageCounts {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

impl PendingUsage {
    fn pending(&self) -> MutexGuard<'_, HashMap<UsageKey, Counted>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn store_pending(&self) -> DatabaseResult<()> {
        let _storing = self.storing.lock().await;
        let cpu = self.cpu.take();
        if !cpu.is_empty()
            && let Err(error) = self.store.add_cpu(&cpu).await
        {
            self.cpu.put_back(cpu);
            return Err(error);
        }
        if self.pending().is_empty() {
            return Ok(());
        }
        let taken = PendingBatch {
            counts: self,
            batch: std::mem::take(&mut *self.pending()).into_iter().collect(),
        };
        self.store.add_usage(&taken.batch).await?;
        taken.stored();
        Ok(())
    }

    async fn forget(&self, keep_days: u32) -> DatabaseResult<()> {
        let before = self.clock.kept_since_day(keep_days);
        while self.store.forget_usage(before, MAX_DELETED_ROWS).await? == MAX_DELETED_ROWS {
            tokio::time::sleep(DELETE_PAUSE).await;
        }
        Ok(())
    }
}

/// A batch that is being stored. If storing fails, it becomes pending again.
struct PendingBatch<'c> {
    counts: &'c PendingUsage,
    batch: Vec<(UsageKey, Counted)>,
}

impl PendingBatch<'_> {
    fn stored(mut self) {
        self.batch.clear();
    }
}

impl Drop for PendingBatch<'_> {
    fn drop(&mut self) {
        let mut pending = self.counts.pending();
        for (key, used) in self.batch.drain(..) {
            pending.entry(key).or_default().add(used);
        }
    }
}

impl std::fmt::Debug for PendingUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Counts({} pending)", self.pending().len())
    }
}

/// Stores pending counts and deletes expired days, periodically.
async fn write(counts: Arc<PendingUsage>, keep_days: u32) {
    let today = Timestamp::now().day();
    match counts.store.cpu(None, today, today).await {
        Ok(used) => counts.cpu.restore(&used),
        Err(error) => {
            tracing::error!(%error, "today's CPU time of accounts could not be read");
        }
    }
    let mut warned = false;
    let mut forget_at = Instant::now();
    loop {
        let mut done = counts.store_pending().await;
        if done.is_ok() && Instant::now() >= forget_at {
            forget_at = Instant::now() + DELETE_INTERVAL;
            done = counts.forget(keep_days).await;
        }
        match done {
            Ok(()) => warned = false,
            Err(error) if !warned => {
                tracing::warn!(%error, "usage could not be stored; counting continues and storing is retried");
                warned = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(STORE_INTERVAL).await;
    }
}
