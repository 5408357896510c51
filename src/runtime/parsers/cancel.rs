//! Giving up a job from another thread.
//!
//! Invariant: after a cancellation no job of the same request starts, and the one that runs ends.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::runtime::process::Stopper;

/// Whether a request was given up, and the process that works for it.
#[derive(Debug, Default)]
pub(super) struct Cancel(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_cancelled: bool,
    running: Option<Stopper>,
}

impl Cancel {
    /// Gives up the job that runs and all that would follow.
    pub(super) fn cancel(&self) {
        let mut state = self.state();
        state.is_cancelled = true;
        if let Some(stopper) = state.running.take() {
            stopper.stop();
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.state().is_cancelled
    }

    /// Notes the process that works; `false` if the request was given up before.
    pub(super) fn begin(&self, stopper: Stopper) -> bool {
        let mut state = self.state();
        state.running = Some(stopper).filter(|_| !state.is_cancelled);
        !state.is_cancelled
    }

    /// Forgets the process: others may use it now.
    pub(super) fn end(&self) {
        self.state().running = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
