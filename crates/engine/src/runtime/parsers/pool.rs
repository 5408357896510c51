//! The pool of parser processes: a fixed maximum, one job at a time for each, fair among callers.
//!
//! Invariant: a process is lent to one job or idle. A process that is not returned has ended, and
//! its slot is free. A caller occupies at most `each` processes and has at most [`MAX_WAITING_PER_CALLER`]
//! waiting jobs.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::error::ParserError;
use super::job::ContentId;
use crate::runtime::process::Process;

/// Maximum number of waiting jobs of one caller.
pub const MAX_WAITING_PER_CALLER: usize = 64;

/// Maximum number of waiting jobs of all callers.
const MAX_WAITING: usize = 256;

/// Number of contents that are remembered per process.
const MAX_REMEMBERED_CONTENTS: usize = 32;

/// Idle processes, and jobs that wait for one.
#[derive(Debug)]
pub(super) struct ParserPool {
    most: usize,
    each: usize,
    state: Mutex<ParserPoolState>,
    changed: Condvar,
}

/// A process, with the ids of the contents that it was sent.
#[derive(Debug)]
pub(super) struct PooledProcess {
    pub(super) process: Process,
    contents: VecDeque<ContentId>,
}

#[derive(Debug, Default)]
struct ParserPoolState {
    idle: Vec<PooledProcess>,
    /// Number of processes that each caller occupies.
    lent: HashMap<i64, usize>,
    /// Waiting jobs, oldest first.
    waiting: Vec<Waiting>,
    /// When each waiting caller last got a process, as a number in the order of all loans.
    served: HashMap<i64, u64>,
    loans: u64,
    tickets: u64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    ticket: u64,
    caller: i64,
}

/// A borrowed process, or the slot for a new one, until it is dropped.
#[derive(Debug)]
pub(super) struct Loan<'p> {
    pool: &'p ParserPool,
    caller: i64,
    seat: Option<PooledProcess>,
}

impl ParserPool {
    /// Creates a pool of `most` processes, of which one caller may occupy half.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            each: (most / 2).max(1),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Waits for a process until a deadline; prefers one that has the content.
    pub(super) fn lend(
        &self,
        caller: i64,
        content: Option<ContentId>,
        until: Instant,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Loan<'_>, ParserError> {
        let mut state = self.state();
        let ticket = state.queue(caller)?;
        loop {
            if is_cancelled() {
                return self.leave(state, ticket, ParserError::Cancelled);
            }
            if state.next(self.most, self.each) == Some(ticket) {
                break;
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                let reason = "all processes that parse such input were busy for too long";
                let reason = reason.to_owned();
                return self.leave(state, ticket, ParserError::Busy { reason });
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let seat = state.take(ticket, caller, content);
        let is_next = state.next(self.most, self.each).is_some();
        drop(state);
        if is_next {
            self.changed.notify_all();
        }
        Ok(Loan {
            pool: self,
            caller,
            seat,
        })
    }

    /// Wakes all waiting jobs, so that they check their state.
    pub(super) fn wake(&self) {
        // Taking the lock ensures that no job is between its check and its wait.
        drop(self.state());
        self.changed.notify_all();
    }

    /// Returns the number of waiting and of running jobs.
    pub(super) fn activity(&self) -> (usize, usize) {
        let state = self.state();
        (state.waiting.len(), state.lent.values().sum())
    }

    fn leave<T>(
        &self,
        mut state: MutexGuard<'_, ParserPoolState>,
        ticket: u64,
        error: ParserError,
    ) -> Result<T, ParserError> {
        state.waiting.retain(|waiting| waiting.ticket != ticket);
        drop(state);
        self.changed.notify_all();
        Err(error)
    }

    fn state(&self) -> MutexGuard<'_, ParserPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ParserPoolState {
    fn queue(&mut self, caller: i64) -> Result<u64, ParserError> {
        let own = self.waiting.iter().filter(|it| it.caller == caller).count();
        if own >= MAX_WAITING_PER_CALLER || self.waiting.len() >= MAX_WAITING {
            let waiting = if own >= MAX_WAITING_PER_CALLER {
                own
            } else {
                self.waiting.len()
            };
            let reason = format!(
                "the queue for processes that parse such input is full: {waiting} inputs are waiting"
            );
            return Err(ParserError::Busy { reason });
        }
        self.tickets += 1;
        let ticket = self.tickets;
        self.waiting.push(Waiting { ticket, caller });
        Ok(ticket)
    }

    /// Returns the ticket that gets the next process: of the caller that was served longest ago.
    fn next(&self, most: usize, each: usize) -> Option<u64> {
        if self.lent.values().sum::<usize>() >= most {
            return None;
        }
        let may = |waiting: &&Waiting| self.lent.get(&waiting.caller).is_none_or(|it| *it < each);
        let turn = |waiting: &&Waiting| {
            let served = self.served.get(&waiting.caller).copied();
            (served.unwrap_or(0), waiting.ticket)
        };
        let next = self.waiting.iter().filter(may).min_by_key(turn)?;
        Some(next.ticket)
    }

    fn take(
        &mut self,
        ticket: u64,
        caller: i64,
        content: Option<ContentId>,
    ) -> Option<PooledProcess> {
        self.waiting.retain(|waiting| waiting.ticket != ticket);
        self.loans += 1;
        self.served.insert(caller, self.loans);
        let waiting = &self.waiting;
        let lent = &self.lent;
        self.served.retain(|known, _| {
            *known == caller
                || lent.contains_key(known)
                || waiting.iter().any(|it| it.caller == *known)
        });
        *self.lent.entry(caller).or_default() += 1;
        let has =
            |seat: &PooledProcess| content.is_some_and(|content| seat.contents.contains(&content));
        let place = self.idle.iter().rposition(has);
        match place {
            Some(place) => Some(self.idle.swap_remove(place)),
            None => self.idle.pop(),
        }
    }
}

impl PooledProcess {
    /// Wraps a process that was just started.
    pub(super) fn new(process: Process) -> Self {
        Self {
            process,
            contents: VecDeque::new(),
        }
    }

    /// Records that the process was sent a content.
    pub(super) fn keeps(&mut self, content: ContentId) {
        self.contents.retain(|known| *known != content);
        if self.contents.len() == MAX_REMEMBERED_CONTENTS {
            self.contents.pop_front();
        }
        self.contents.push_back(content);
    }
}

impl Loan<'_> {
    /// Takes the process, if the slot has one. A process that is not returned is ended.
    pub(super) fn take(&mut self) -> Option<PooledProcess> {
        self.seat.take()
    }

    /// Returns the process to the pool for the next job.
    pub(super) fn return_to_pool(mut self, seat: PooledProcess) {
        self.seat = Some(seat);
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        if let Some(held) = state.lent.get_mut(&self.caller) {
            *held -= 1;
            if *held == 0 {
                state.lent.remove(&self.caller);
            }
        }
        state.idle.extend(self.seat.take());
        let is_awaited = !state.waiting.is_empty();
        drop(state);
        if is_awaited {
            self.pool.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    fn lend(pool: &ParserPool, caller: i64) -> Result<Loan<'_>, ParserError> {
        pool.lend(caller, None, soon(), || false)
    }

    #[test]
    fn one_caller_never_holds_every_place() {
        let pool = ParserPool::new(2);
        let first = lend(&pool, 1).expect("it is free");
        assert!(matches!(lend(&pool, 1), Err(ParserError::Busy { .. })));
        let other = lend(&pool, 2).expect("there is one for another caller");
        assert!(matches!(lend(&pool, 3), Err(ParserError::Busy { .. })));
        drop(first);
        drop(lend(&pool, 1).expect("it is free again"));
        drop(other);
        assert_eq!(pool.activity(), (0, 0));
    }

    #[test]
    fn who_was_served_longest_ago_is_next() {
        let pool = Arc::new(ParserPool::new(1));
        let first = lend(&pool, 1).expect("it is free");
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        for (place, caller) in [1, 1, 1, 2, 2, 3].into_iter().enumerate() {
            let (own, order) = (Arc::clone(&pool), Arc::clone(&order));
            threads.push(std::thread::spawn(move || {
                let until = Instant::now() + Duration::from_mins(1);
                let lent = own.lend(caller, None, until, || false).expect("it comes");
                order.lock().expect("no test has panicked").push(caller);
                drop(lent);
            }));
            while pool.activity().0 <= place {
                std::thread::yield_now();
            }
        }
        drop(first);
        for thread in threads {
            thread.join().expect("it ends");
        }
        let order = order.lock().expect("no test has panicked").clone();
        assert_eq!(order, [2, 3, 1, 2, 1, 1]);
    }

    #[test]
    fn who_is_cancelled_leaves_the_queue() {
        let pool = ParserPool::new(1);
        let _first = lend(&pool, 1).expect("it is free");
        let cancelled = pool.lend(1, None, soon(), || true);
        assert!(matches!(cancelled, Err(ParserError::Cancelled)));
        assert_eq!(pool.activity(), (0, 1));
    }
}
