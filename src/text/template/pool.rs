//! The processes that render: so many at most, each for one caller at a time.
//!
//! Invariant: a process is lent to one caller or idle; one that was not given back has ended, and its
//! place is free again. Nobody waits longer than was said.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::runtime::process::Process;

/// Processes that are idle, and how many there are.
#[derive(Debug)]
pub(super) struct Pool {
    most: usize,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Process>,
    lent: usize,
}

/// A process, or the place for a new one, until it is dropped.
#[derive(Debug)]
pub(super) struct Lent<'p> {
    pool: &'p Pool,
    process: Option<Process>,
}

impl Pool {
    /// Of `most` processes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// A process, waited for until then.
    pub(super) fn lend(&self, patience: Duration) -> Option<Lent<'_>> {
        let until = Instant::now() + patience;
        let mut state = self.state();
        while state.lent >= self.most {
            let left = until.checked_duration_since(Instant::now())?;
            let waited = self.freed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.lent += 1;
        let process = state.idle.pop();
        Some(Lent {
            pool: self,
            process,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent<'_> {
    /// Takes the process, if there is one already. One that is not given back is ended.
    pub(super) fn take(&mut self) -> Option<Process> {
        self.process.take()
    }

    /// Keeps it for the next caller.
    pub(super) fn give_back(mut self, process: Process) {
        self.process = Some(process);
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.lent -= 1;
        state.idle.extend(self.process.take());
        drop(state);
        self.pool.freed.notify_one();
    }
}
