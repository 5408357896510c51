//! Cancels the jobs of a request from another thread.
//!
//! Invariant: after a cancellation no job of the same request starts, and the running one ends.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::runtime::process::Stopper;

/// The cancellation state of a request, and the process that works for it.
#[derive(Debug, Default)]
pub(super) struct Cancel(Mutex<CancelState>);

#[derive(Debug, Default)]
struct CancelState {
    is_cancelled: bool,
    running: Option<Stopper>,
}

impl Cancel {
    /// Cancels the running job and all later ones.
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

    /// Registers the process that works for the request; returns `false` if the request was
    /// cancelled before.
    pub(super) fn begin(&self, stopper: Stopper) -> bool {
        let mut state = self.state();
        state.running = Some(stopper).filter(|_| !state.is_cancelled);
        !state.is_cancelled
    }

    /// Unregisters the process: other requests may use it now.
    pub(super) fn end(&self) {
        self.state().running = None;
    }

    fn state(&self) -> MutexGuard<'_, CancelState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
