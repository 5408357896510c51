//! How a server stops: it takes no more, then cuts off what still runs, then has ended; within one grace.
//!
//! Invariant: all that stops goes by one deadline, however many parts it has.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
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
    is_cut_off: AtomicBool,
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
            is_cut_off: AtomicBool::new(false),
            cut: AtomicUsize::new(0),
        }
    }

    /// It is so far now.
    pub(super) fn set(&self, stage: Stage) {
        self.is_cut_off
            .store(stage == Stage::CutOff, Ordering::Release);
        self.stage.send_replace(stage);
    }

    /// Whether it serves.
    pub(super) fn is_serving(&self) -> bool {
        *self.stage.borrow() == Stage::Serving
    }

    /// Waits for the answer of a request; `None` if it is cut off before. One that is answered in the
    /// task of its connection need not listen: the listener wakes that task when it is time to cut.
    pub(super) async fn unless_cut<T>(
        &self,
        answer: impl Future<Output = T>,
        has_own_task: bool,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        let mut cut = has_own_task.then(|| Box::pin(self.reached(Stage::CutOff)));
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
