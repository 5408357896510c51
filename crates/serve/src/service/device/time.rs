//! The time of a request that takes several steps.

use std::time::{Duration, Instant};

use super::super::CallError;
use super::super::engine::Endpoint;
use crate::account::AccountId;
use pkgtool_engine::tensor::Tensor;

/// The time that a request has left.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeLeft {
    began: Instant,
    timeout: Option<Duration>,
}

impl TimeLeft {
    /// Starts a time; `None` is unlimited.
    pub(super) fn of(timeout: Option<Duration>) -> Self {
        Self {
            began: Instant::now(),
            timeout,
        }
    }

    fn left(self) -> Option<Duration> {
        self.timeout
            .map(|after| after.saturating_sub(self.began.elapsed()))
    }

    /// Waits for work, at most for the time that is left.
    pub(super) async fn within<T>(
        self,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let (Some(left), Some(after)) = (self.left(), self.timeout) else {
            return work.await;
        };
        let done = tokio::time::timeout(left, work).await;
        done.map_err(|_| CallError::Timeout { after })?
    }

    /// Runs a model, at most for the time that is left. The error names the whole time.
    pub(super) async fn run(
        self,
        endpoint: &Endpoint,
        caller: AccountId,
        inputs: Vec<Tensor>,
    ) -> Result<Vec<Tensor>, CallError> {
        let ran = endpoint.run(caller, inputs, self.left()).await;
        ran.map_err(|error| match (error, self.timeout) {
            (CallError::Timeout { .. }, Some(after)) => CallError::Timeout { after },
            (error, _) => error,
        })
    }
}
