//! How a server stops: it takes no more, then cuts off what still runs, then has ended; within one grace.
//!
//! Invariant: all that stops goes by one deadline, however many parts it has.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Longest time between the cut and the end: for answers to leave, and sessions to go.
const AFTER_THE_CUT: Duration = Duration::from_secs(1);

/// Until when a server that stops has time.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    /// What runs then is cut off.
    pub cut: Instant,
    /// Nothing is waited for any longer.
    pub end: Instant,
}

/// How far a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It serves.
    Serving,
    /// It lets requests end: whoever waits for a task's end is told its state now.
    Draining,
    /// It answers what is left with an error.
    CutOff,
}

/// Tells requests how far their server is.
#[derive(Debug)]
pub(super) struct Stopping {
    stage: watch::Sender<Stage>,
    cut: AtomicUsize,
}

impl Deadline {
    /// A grace that begins now.
    pub fn after(grace: Duration) -> Self {
        let now = Instant::now();
        // What is beyond all clocks never comes: a year is as good.
        let end = now
            .checked_add(grace)
            .unwrap_or(now + Duration::from_hours(24 * 365));
        let cut = end - (grace / 5).min(AFTER_THE_CUT);
        Self { cut, end }
    }
}

impl Stopping {
    /// A server that serves.
    pub(super) fn new() -> Self {
        Self {
            stage: watch::Sender::new(Stage::Serving),
            cut: AtomicUsize::new(0),
        }
    }

    /// It is so far now.
    pub(super) fn set(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// Whether it serves.
    pub(super) fn is_serving(&self) -> bool {
        *self.stage.borrow() == Stage::Serving
    }

    /// Waits until it is so far.
    pub(super) async fn reached(&self, stage: Stage) {
        let mut watched = self.stage.subscribe();
        // The sender lives as long as this does.
        let _ = watched.wait_for(|now| *now >= stage).await;
    }

    /// Counts requests that were cut off.
    pub(super) fn count_cut(&self, requests: usize) {
        self.cut.fetch_add(requests, Ordering::Relaxed);
    }

    /// Requests that were cut off.
    pub(super) fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }
}
