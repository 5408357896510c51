//! The thread that owns a session: decides its next step, loads and releases the session.
//!
//! Invariant: only this thread uses the session, and it ends the session before it releases the
//! memory. However the thread ends, its seat becomes free. No lock is held while a session works.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::batch::{self, Batching};
use super::ledger::{Asker, Lease};
use super::loaded::{Loaded, for_log};
use super::request::Waiting;
use super::shared::{Phase, Run, Shared, State, of_size};
use crate::engine::{Begins, EngineError};
use crate::runtime::target::Candidate;
use crate::tensor::Tensor;

/// Idle timeout of an endpoint's sessions beyond the first.
const SPARE_IDLE: Duration = Duration::from_mins(10);

/// An owner thread.
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
    pub(super) seat: u64,
    pub(super) held: Option<Held>,
}

/// A session and its memory lease. The session is dropped first.
pub(super) struct Held {
    pub(super) session: Loaded,
    pub(super) candidate: Candidate,
    /// True if its engine has run the model, here or in an earlier session.
    pub(super) proven: bool,
    /// Number of successful runs.
    pub(super) runs: u64,
    /// Duration of the last run.
    pub(super) last: Duration,
    /// CPU time of the last run.
    pub(super) cpu: Duration,
    pub(super) lease: Lease,
}

/// Next step of an owner thread.
enum Step {
    Load(Candidate),
    Prove(Vec<Tensor>),
    Try,
    Run(Vec<Waiting>),
    Release(&'static str),
}

/// How to proceed with the waiting requests.
enum Share {
    Alone,
    Prove(Vec<Tensor>),
    Gather(Duration),
    Together(u64),
}

/// Starts the owner thread of a seat.
pub(super) fn start(shared: &Arc<Shared>, seat: u64) -> io::Result<JoinHandle<()>> {
    let owner = Owner {
        shared: Arc::clone(shared),
        seat,
        held: None,
    };
    Builder::new()
        .name("engine".to_owned())
        .spawn(move || owner.work())
}

impl Owner {
    fn work(mut self) {
        while let Some(step) = self.next() {
            match step {
                Step::Load(candidate) => self.load(candidate),
                Step::Prove(like) => self.prove(&like),
                Step::Try => self.try_before_requests(),
                Step::Run(requests) => {
                    // A request with another start state runs alone.
                    let begins = requests.first().map(|first| first.begins.clone());
                    if let Some(terms) = self.run(requests, begins.unwrap_or(Begins::Anew)) {
                        self.converse(&terms);
                    }
                }
                Step::Release(why) => self.release(why),
            }
        }
    }

    /// Waits for the next step; `None` ends the thread.
    fn next(&mut self) -> Option<Step> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        loop {
            if state.phase == Phase::Stopped {
                return None;
            }
            let Some(held) = &self.held else {
                if state.queue.is_empty() {
                    // Under the same lock, the next request can open a seat again.
                    state.seats.remove(&self.seat);
                    return None;
                }
                let now = Instant::now();
                if let Some(error) = state.refusal(now) {
                    state.refuse(&error);
                } else if let Some(left) = state.backoff.left(now) {
                    state = wait(&shared, state, left).0;
                } else {
                    return Some(Step::Load(state.choice.next()?));
                }
                continue;
            };
            if held.lease.must_go() {
                return Some(Step::Release("its memory is needed"));
            }
            if state.queue.is_empty() {
                if held.lease.end_use() {
                    drop(state);
                    shared.ledger.wake();
                    state = shared.lock();
                    continue;
                }
                let (locked, late) = wait(&shared, state, SPARE_IDLE);
                state = locked;
                if late && state.queue.is_empty() && state.sessions() > 1 {
                    return Some(Step::Release("idle timeout"));
                }
                continue;
            }
            if !held.lease.begin_use() {
                return Some(Step::Release("its memory is needed"));
            }
            if state.is_doubtful && !held.proven {
                self.begin(&mut state, Vec::new(), true);
                return Some(Step::Try);
            }
            match shared.share(&state) {
                Share::Gather(left) => {
                    state.gathering += 1;
                    state = wait(&shared, state, left).0;
                    state.gathering -= 1;
                }
                Share::Prove(like) => {
                    state.batching = Batching::Testing;
                    self.begin(&mut state, Vec::new(), true);
                    return Some(Step::Prove(like));
                }
                Share::Alone => {
                    let requests: Vec<Waiting> = state.queue.pop().into_iter().collect();
                    let proves = !held.proven;
                    return Some(self.take(&mut state, requests, proves));
                }
                Share::Together(rows) => {
                    let requests = shared.take_together(&mut state, rows);
                    return Some(self.take(&mut state, requests, false));
                }
            }
        }
    }

    fn take(&self, state: &mut State, requests: Vec<Waiting>, proves: bool) -> Step {
        let ids = requests.iter().map(|request| request.id).collect();
        // Any run proves a portable engine. A provider gets as much time as its first run needs.
        let held = self.held.as_ref();
        let protected = proves && held.is_some_and(Held::is_on_target);
        self.begin(state, ids, protected);
        self.shared.staff(state);
        Step::Run(requests)
    }

    fn begin(&self, state: &mut State, live: Vec<u64>, protected: bool) {
        if let Some(seat) = state.seats.get_mut(&self.seat) {
            seat.run = Some(Run {
                live,
                protected,
                ..Run::default()
            });
        }
    }

    fn load(&mut self, candidate: Candidate) {
        let shared = Arc::clone(&self.shared);
        let model = &shared.model;
        let (bytes, urgent, proven) = {
            let state = shared.lock();
            let is_made = state.choice.is_made();
            (shared.need(&state), state.sessions() == 0, is_made)
        };
        let asker = Asker {
            endpoint: shared.number,
            bytes,
            urgent,
            wants: &|| {
                let state = shared.lock();
                state.phase != Phase::Stopped && !state.queue.is_empty()
            },
            bell: shared.bell(),
        };
        let lease = match shared.ledger.reserve(&asker) {
            Ok(Some(lease)) => lease,
            Ok(None) => return,
            Err(too_large) => {
                shared.lock().loading_failed(&of_size(too_large));
                return;
            }
        };
        let start = Instant::now();
        let how = (candidate, !proven);
        let loaded = shared
            .source
            .load(model, &shared.settings, how, |worker, stopper| {
                let mut state = shared.lock();
                let is_stopped = state.phase == Phase::Stopped;
                if let Some(seat) = state.seats.get_mut(&self.seat) {
                    seat.stopped = false;
                    seat.process = Some((stopper, worker.id()));
                    if is_stopped {
                        seat.stop();
                    }
                }
            });
        let session = match loaded {
            Ok(session) => session,
            Err(error) => return self.failed_to_load(candidate, error, lease),
        };
        tracing::debug!(
            service = model.service,
            engine = candidate.engine,
            provider = candidate.provider.name(),
            milliseconds = start.elapsed().as_millis(),
            "session loaded"
        );
        self.held = Some(Held {
            session,
            candidate,
            proven,
            runs: 0,
            last: Duration::ZERO,
            cpu: Duration::ZERO,
            lease,
        });
        let mut state = shared.lock();
        if let Some(seat) = state.seats.get_mut(&self.seat) {
            seat.loaded = true;
            seat.bytes = bytes;
        }
        shared.meter.starts.fetch_add(1, Relaxed);
        if state.missing > 0 {
            state.missing -= 1;
            shared.meter.restarts.fetch_add(1, Relaxed);
        }
    }

    fn failed_to_load(&mut self, candidate: Candidate, error: EngineError, lease: Lease) {
        drop(lease);
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if let Some(seat) = state.seats.get_mut(&self.seat) {
            seat.process = None;
        }
        if state.phase == Phase::Stopped {
            return;
        }
        tracing::debug!(
            service = shared.model.service,
            engine = candidate.engine,
            provider = candidate.provider.name(),
            reason = for_log(&error),
            "cannot load a session"
        );
        if let Err(error) = state.choice.fail(candidate, error) {
            let pause = state.loading_failed(&error);
            tracing::warn!(
                service = shared.model.service,
                engine = candidate.engine,
                provider = candidate.provider.name(),
                pause_ms = pause.as_millis(),
                "no engine can load the model"
            );
        }
        drop(state);
        shared.tell_change();
    }

    /// Ends the session, if loaded.
    pub(super) fn release(&mut self, why: &str) {
        let Some(held) = self.held.take() else { return };
        let Held {
            session,
            candidate,
            lease,
            ..
        } = held;
        drop(session);
        if let Some(seat) = self.shared.lock().seats.get_mut(&self.seat) {
            seat.loaded = false;
            seat.process = None;
            seat.stopped = false;
        }
        drop(lease);
        tracing::debug!(
            service = self.shared.model.service,
            engine = candidate.engine,
            provider = candidate.provider.name(),
            why,
            "session ended"
        );
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.release("its thread ends");
        let mut state = self.shared.lock();
        state.seats.remove(&self.seat);
        if state.phase != Phase::Stopped {
            // After a panic of this thread, another one must answer.
            self.shared.staff(&mut state);
        }
        drop(state);
        self.shared.tell_change();
    }
}

impl Shared {
    /// Decides how the next requests run: alone or in a batch.
    fn share(&self, state: &State) -> Share {
        let Some(limit) = self.rows_limit else {
            return Share::Alone;
        };
        let may = matches!(state.batching, Batching::On | Batching::Untested);
        let Some(first) = state.queue.first().filter(|first| may && !first.alone) else {
            return Share::Alone;
        };
        let Some((inputs, rows)) = rows_of(first) else {
            return Share::Alone;
        };
        if !state.choice.is_made() || rows >= limit {
            return Share::Alone;
        }
        let most = self.settings.batch_max_size;
        let count = state.queue.count_where(most, fitting(inputs, limit));
        let longest = Duration::from_millis(self.settings.batch_max_wait_ms);
        let left = longest.saturating_sub(first.since.elapsed());
        let is_full = || {
            let without_limit = fitting(inputs, u64::MAX);
            count == most || count < state.queue.count_where(most, without_limit)
        };
        if !left.is_zero() && state.phase == Phase::Open && !is_full() {
            Share::Gather(left)
        } else if count < 2 {
            Share::Alone
        } else if state.batching == Batching::Untested {
            Share::Prove(inputs.to_vec())
        } else {
            Share::Together(limit)
        }
    }

    fn take_together(&self, state: &mut State, limit: u64) -> Vec<Waiting> {
        let first = state.queue.first().and_then(|first| first.inputs.clone());
        let inputs = first.unwrap_or_default();
        let most = self.settings.batch_max_size;
        state.queue.take_where(most, fitting(&inputs, limit))
    }
}

/// Returns a request's inputs and rows, if it may be batched.
fn rows_of(request: &Waiting) -> Option<(&[Tensor], u64)> {
    let inputs = request.inputs.as_deref().filter(|_| !request.alone)?;
    Some((inputs, batch::rows(inputs)?))
}

/// Returns a filter that accepts requests compatible with `like`, up to a total number of rows.
fn fitting(like: &[Tensor], limit: u64) -> impl FnMut(&Waiting) -> bool + '_ {
    let mut left = limit;
    move |request| {
        let Some((inputs, rows)) = rows_of(request) else {
            return false;
        };
        let fits = rows <= left && batch::agree(like, inputs);
        if fits {
            left -= rows;
        }
        fits
    }
}

/// Waits for a wakeup, at most for `limit`. The flag is `true` after a timeout.
pub(super) fn wait<'a>(
    shared: &'a Shared,
    state: MutexGuard<'a, State>,
    limit: Duration,
) -> (MutexGuard<'a, State>, bool) {
    let waited = shared.wake.wait_timeout(state, limit);
    let (state, outcome) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
    (state, outcome.timed_out())
}
