//! State shared by the writer and the callers' threads: rate limits and notification channels.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{broadcast, watch};

use super::super::rate::Rates;
use super::super::stored::EVENT_CAPACITY;
use super::super::{EnqueueError, Limit, StoreTimes, TaskEvent};
use crate::account::AccountId;
use crate::database::Timestamp;

/// State shared by the writer and the callers' threads.
#[derive(Debug)]
pub(super) struct SharedWriter {
    rates: Mutex<Rates>,
    pub(super) wakeups: watch::Sender<u64>,
    pub(super) events: broadcast::Sender<TaskEvent>,
    pub(super) times: StoreTimes,
}

impl SharedWriter {
    pub(super) fn new() -> Self {
        Self {
            rates: Mutex::default(),
            wakeups: watch::Sender::new(0),
            events: broadcast::Sender::new(EVENT_CAPACITY),
            times: StoreTimes::default(),
        }
    }

    /// Counts a request in its account's rate.
    pub(super) fn admit(
        &self,
        account: AccountId,
        limit: Limit,
        now: Timestamp,
    ) -> Result<(), EnqueueError> {
        if limit.is_counted {
            return Ok(());
        }
        let limit = limit.rps;
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = rates.admit(account, limit, now);
        admitted.map_err(|retry_after| EnqueueError::RateExceeded { limit, retry_after })
    }
}
