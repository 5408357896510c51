//! The time limit of a call to another process.

use std::time::Duration;

use tokio::time::Instant;

use super::CallError;

/// Time limit of a call and its deadline.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallDeadline(Option<(Duration, Instant)>);

impl CallDeadline {
    pub(super) fn after(timeout: Option<Duration>) -> Self {
        // A limit beyond the clock's range means no deadline.
        let at = |after| Some((after, Instant::now().checked_add(after)?));
        Self(timeout.and_then(at))
    }

    /// Waits for work until the deadline.
    pub(super) async fn wait<T>(self, work: impl Future<Output = T>) -> Result<T, CallError> {
        match self.0 {
            None => Ok(work.await),
            Some((after, at)) => tokio::time::timeout_at(at, work)
                .await
                .map_err(|_| CallError::Timeout { after }),
        }
    }
}
