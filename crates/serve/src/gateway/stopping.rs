//! Graceful shutdown of the server: it drains requests, cuts off the rest, then ends.
//!
//! A server goes through the stages of [`ShutdownStage`]. Requests and connections watch the
//! current stage.
//!
//! Invariant: all listeners and requests share one [`Deadline`], within one grace period.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Maximum time between cutting off requests and the end: answers leave and sessions close in it.
const MAX_TIME_AFTER_CUT: Duration = Duration::from_secs(1);

/// The deadline of a shutdown.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    /// Requests that still run at this moment are cut off.
    pub cut: Instant,
    /// The server stops waiting at this moment.
    pub end: Instant,
}

/// The stage of a server's shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShutdownStage {
    /// The server accepts requests.
    Serving,
    /// The server lets requests end. Requests that wait for a task to finish return its current
    /// state at once.
    Draining,
    /// The server answers the remaining requests with an error.
    CutOff,
}

/// Publishes the stage of the server to its requests.
#[derive(Debug)]
pub(super) struct ShutdownState {
    stage: watch::Sender<ShutdownStage>,
    is_cut_off: AtomicBool,
    cut_requests: AtomicUsize,
}

impl Deadline {
    /// Starts a grace period now.
    pub fn after(grace: Duration) -> Self {
        let now = Instant::now();
        // A grace period beyond the range of the clock is replaced by a year.
        let end = now
            .checked_add(grace)
            .unwrap_or(now + Duration::from_hours(24 * 365));
        let cut = end - (grace / 5).min(MAX_TIME_AFTER_CUT);
        Self { cut, end }
    }
}

impl ShutdownState {
    /// Returns the state of a server that accepts requests.
    pub(super) fn new() -> Self {
        Self {
            stage: watch::Sender::new(ShutdownStage::Serving),
            is_cut_off: AtomicBool::new(false),
            cut_requests: AtomicUsize::new(0),
        }
    }

    /// Moves the server to a stage.
    pub(super) fn set(&self, stage: ShutdownStage) {
        self.is_cut_off
            .store(stage == ShutdownStage::CutOff, Ordering::Release);
        self.stage.send_replace(stage);
    }

    /// Returns `true` while the server accepts requests.
    pub(super) fn is_serving(&self) -> bool {
        *self.stage.borrow() == ShutdownStage::Serving
    }

    /// Waits for the answer of a request; returns `None` if the request is cut off first.
    ///
    /// A request that runs in the task of its connection does not subscribe to the stage: the
    /// listener wakes that task at the cut. `has_own_task` marks a request that runs in a task of
    /// its own.
    pub(super) async fn unless_cut<T>(
        &self,
        answer: impl Future<Output = T>,
        has_own_task: bool,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        let mut cut = has_own_task.then(|| Box::pin(self.reached(ShutdownStage::CutOff)));
        let answered = poll_fn(|context| {
            if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                return Poll::Ready(Some(answer));
            }
            let is_cut = match &mut cut {
                Some(cut) => cut.as_mut().poll(context).is_ready(),
                None => self.is_cut_off.load(Ordering::Acquire),
            };
            if is_cut {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        })
        .await;
        if answered.is_none() {
            self.count_cut(1);
        }
        answered
    }

    /// Waits until the server has reached a stage.
    pub(super) async fn reached(&self, stage: ShutdownStage) {
        let mut watched = self.stage.subscribe();
        // The sender lives as long as `self`.
        let _ = watched.wait_for(|now| *now >= stage).await;
    }

    /// Counts requests that were cut off.
    pub(super) fn count_cut(&self, requests: usize) {
        self.cut_requests.fetch_add(requests, Ordering::Relaxed);
    }

    /// Returns the number of requests that were cut off.
    pub(super) fn cut(&self) -> usize {
        self.cut_requests.load(Ordering::Relaxed)
    }
}
