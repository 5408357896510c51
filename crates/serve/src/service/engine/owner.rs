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
use super::ledger::{MemoryLease, MemoryRequest};
use super::loaded::{LoadedSession, for_log};
use super::place::{Placing, SessionPlace};
use super::request::QueuedRequest;
use super::shared::{SharedEndpoint, too_large_error};
use super::state::{EndpointState, Phase, SeatRun};
use crate::service::CallError;
use pkgtool_engine::runtime::target::Candidate;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::{EngineError, RunStart};

/// Idle timeout of an endpoint's sessions beyond the first.
const SPARE_IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// Idle timeout of sessions that give way to others: they use memory beside those of their model.
const BACKGROUND_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest pause before a thread looks again where a session can live.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// An owner thread.
pub(super) struct Owner {
    pub(super) shared: Arc<SharedEndpoint>,
    pub(super) seat: u64,
    pub(super) held: Option<OwnedSession>,
}

/// A session and its memory lease. The session is dropped first.
pub(super) struct OwnedSession {
    pub(super) session: LoadedSession,
    pub(super) candidate: Candidate,
    pub(super) place: SessionPlace,
    /// True if its engine has run the model, here or in an earlier session.
    pub(super) proven: bool,
    /// Number of successful runs.
    pub(super) runs: u64,
    /// Duration of the last run.
    pub(super) last: Duration,
    /// CPU time of the last run.
    pub(super) cpu: Duration,
    pub(super) lease: MemoryLease,
}

/// Next step of an owner thread.
enum OwnerStep {
    Load(SessionPlace, Candidate),
    Prove(Vec<Tensor>),
    Try,
    Run(Vec<QueuedRequest>),
    Release(&'static str),
}

/// How to proceed with the waiting requests.
enum BatchPlan {
    Alone,
    Prove(Vec<Tensor>),
    Gather(Duration),
    Together(u64),
}

/// Starts the owner thread of a seat.
pub(super) fn start(shared: &Arc<SharedEndpoint>, seat: u64) -> io::Result<JoinHandle<()>> {
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
                OwnerStep::Load(place, candidate) => self.load(place, candidate),
                OwnerStep::Prove(like) => self.prove(&like),
                OwnerStep::Try => self.try_before_requests(),
                OwnerStep::Run(requests) => {
                    // A request with another start state runs alone.
                    let begins = requests.first().map(|first| first.begins.clone());
                    if let Some(terms) = self.run(requests, begins.unwrap_or(RunStart::Anew)) {
                        self.converse(&terms);
                    }
                }
                OwnerStep::Release(why) => self.release(why),
            }
        }
    }

    /// Waits for the next step; `None` ends the thread.
    fn next(&mut self) -> Option<OwnerStep> {
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
                    continue;
                }
                match (shared.placing(&state), state.backoff.left(now)) {
                    (Placing::Nowhere(absence), _) if !absence.is_expected => {
                        state.refuse(&CallError::Away(absence.reason));
                    }
                    (_, Some(left)) => state = wait(&shared, state, left).0,
                    (Placing::Nowhere(_), None) => state = wait(&shared, state, AWAY_PAUSE).0,
                    (Placing::At(place), None) => {
                        let candidate = state.choices.at(&place).next()?;
                        return Some(OwnerStep::Load(place, candidate));
                    }
                }
                continue;
            };
            if !shared.may_stay(&held.place, &state) {
                if let Some(seat) = state.seats.get_mut(&self.seat) {
                    seat.device = None;
                }
                return Some(OwnerStep::Release("its device left or came back"));
            }
            if held.lease.must_go() {
                return Some(OwnerStep::Release("its memory is needed"));
            }
            if state.queue.is_empty() {
                if held.lease.end_use() {
                    drop(state);
                    held.lease.wake_others();
                    state = shared.lock();
                    continue;
                }
                let gives_way = shared.source.gives_way();
                let timeout = if gives_way {
                    BACKGROUND_IDLE_TIMEOUT
                } else {
                    SPARE_IDLE_TIMEOUT
                };
                let (locked, late) = wait(&shared, state, timeout);
                state = locked;
                let is_spare = gives_way || state.sessions() > 1;
                if late && state.queue.is_empty() && is_spare {
                    return Some(OwnerStep::Release("idle timeout"));
                }
                continue;
            }
            if !held.lease.begin_use() {
                return Some(OwnerStep::Release("its memory is needed"));
            }
            if state.is_doubtful && !held.proven {
                self.begin(&mut state, Vec::new(), true);
                return Some(OwnerStep::Try);
            }
            match shared.share(&state) {
                BatchPlan::Gather(left) => {
                    state.gathering += 1;
                    state = wait(&shared, state, left).0;
                    state.gathering -= 1;
                }
                BatchPlan::Prove(like) => {
                    state.batching = Batching::Testing;
                    self.begin(&mut state, Vec::new(), true);
                    return Some(OwnerStep::Prove(like));
                }
                BatchPlan::Alone => {
                    let requests: Vec<QueuedRequest> = state.queue.pop().into_iter().collect();
                    let proves = !held.proven;
                    return Some(self.take(&mut state, requests, proves));
                }
                BatchPlan::Together(rows) => {
                    let requests = shared.take_together(&mut state, rows);
                    return Some(self.take(&mut state, requests, false));
                }
            }
        }
    }

    fn take(
        &self,
        state: &mut EndpointState,
        requests: Vec<QueuedRequest>,
        proves: bool,
    ) -> OwnerStep {
        let ids = requests.iter().map(|request| request.id).collect();
        // Any run proves a portable engine. A provider gets as much time as its first run needs.
        let held = self.held.as_ref();
        let protected = proves && held.is_some_and(OwnedSession::is_on_target);
        self.begin(state, ids, protected);
        self.shared.staff(state);
        OwnerStep::Run(requests)
    }

    fn begin(&self, state: &mut EndpointState, live: Vec<u64>, protected: bool) {
        if let Some(seat) = state.seats.get_mut(&self.seat) {
            seat.run = Some(SeatRun {
                live,
                protected,
                ..SeatRun::default()
            });
        }
    }

    fn load(&mut self, place: SessionPlace, candidate: Candidate) {
        let shared = Arc::clone(&self.shared);
        let model = &shared.model;
        let ledger = place.ledger(&shared.ledger);
        let (bytes, urgent, proven) = {
            let mut state = shared.lock();
            if let Some(seat) = state.seats.get_mut(&self.seat) {
                seat.device = place.number();
            }
            let is_made = state.choices.at(&place).is_made();
            (shared.need(&state, ledger), state.sessions() == 0, is_made)
        };
        let asker = MemoryRequest {
            endpoint: shared.number,
            bytes,
            urgent,
            gives_way: shared.source.gives_way(),
            wants: &|| {
                let state = shared.lock();
                state.phase != Phase::Stopped
                    && !state.queue.is_empty()
                    && shared.may_stay(&place, &state)
            },
            bell: shared.bell(),
        };
        let lease = match ledger.reserve(&asker) {
            Ok(Some(lease)) => lease,
            Ok(None) => return,
            Err(too_large) => {
                shared
                    .lock()
                    .loading_failed(&too_large_error(too_large, &place));
                return;
            }
        };
        let start = Instant::now();
        let how = (candidate, !proven);
        let loaded = shared
            .source
            .load(model, &shared.settings, &place, how, |worker, stopper| {
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
            Err(error) => return self.failed_to_load((&place, candidate), error, lease),
        };
        tracing::debug!(
            service = model.service,
            engine = candidate.engine,
            provider = candidate.provider.name(),
            milliseconds = start.elapsed().as_millis(),
            "session loaded"
        );
        self.held = Some(OwnedSession {
            session,
            candidate,
            place,
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

    fn failed_to_load(
        &mut self,
        (place, candidate): (&SessionPlace, Candidate),
        error: EngineError,
        lease: MemoryLease,
    ) {
        drop(lease);
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if let Some(seat) = state.seats.get_mut(&self.seat) {
            seat.process = None;
            seat.device = None;
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
        if let (EngineError::Device { is_lost: true, .. }, SessionPlace::Device(connection)) =
            (&error, place)
        {
            // The requests wait for the end of the check.
            shared.source.devices.suspect(connection);
            state.backoff.fail(Instant::now());
            return;
        }
        if let Err(error) = state.choices.at(place).fail(candidate, error) {
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
        shared.notify_change();
    }

    /// Ends the session, if loaded.
    pub(super) fn release(&mut self, why: &str) {
        let Some(held) = self.held.take() else { return };
        let OwnedSession {
            session,
            candidate,
            lease,
            ..
        } = held;
        drop(session);
        if let Some(seat) = self.shared.lock().seats.get_mut(&self.seat) {
            seat.loaded = false;
            seat.device = None;
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
        self.shared.notify_change();
    }
}

impl SharedEndpoint {
    /// Returns where the next session can live. Sessions spread over the devices.
    fn placing(&self, state: &EndpointState) -> Placing {
        let devices = &self.source.devices;
        let wanted = match devices.wanted(self.model.backend, &self.settings) {
            Ok(wanted) => wanted,
            Err(placing) => return placing,
        };
        let least = wanted
            .into_iter()
            .min_by_key(|it| state.sessions_at(it.number));
        Placing::At(least.map_or(SessionPlace::Here, SessionPlace::Device))
    }

    /// Returns whether a session may stay where it lives.
    fn may_stay(&self, place: &SessionPlace, state: &EndpointState) -> bool {
        let how = (self.model.backend, &self.settings);
        let devices = &self.source.devices;
        devices.may_stay(place, how, |device| state.sessions_at(device))
    }

    /// Decides how the next requests run: alone or in a batch.
    fn share(&self, state: &EndpointState) -> BatchPlan {
        let Some(limit) = self.rows_limit else {
            return BatchPlan::Alone;
        };
        let may = matches!(state.batching, Batching::On | Batching::Untested);
        let Some(first) = state.queue.first().filter(|first| may && !first.alone) else {
            return BatchPlan::Alone;
        };
        let Some((inputs, rows)) = rows_of(first) else {
            return BatchPlan::Alone;
        };
        if !state.choices.is_made() || rows >= limit {
            return BatchPlan::Alone;
        }
        let most = self.settings.batch_max_size;
        let count = state.queue.count_where(most, fits_batch(inputs, limit));
        let longest = Duration::from_millis(self.settings.batch_max_wait_ms);
        let left = longest.saturating_sub(first.since.elapsed());
        let is_full = || {
            let without_limit = fits_batch(inputs, u64::MAX);
            count == most || count < state.queue.count_where(most, without_limit)
        };
        if !left.is_zero() && state.phase == Phase::Open && !is_full() {
            BatchPlan::Gather(left)
        } else if count < 2 {
            BatchPlan::Alone
        } else if state.batching == Batching::Untested {
            BatchPlan::Prove(inputs.to_vec())
        } else {
            BatchPlan::Together(limit)
        }
    }

    fn take_together(&self, state: &mut EndpointState, limit: u64) -> Vec<QueuedRequest> {
        let first = state.queue.first().and_then(|first| first.inputs.clone());
        let inputs = first.unwrap_or_default();
        let most = self.settings.batch_max_size;
        state.queue.take_where(most, fits_batch(&inputs, limit))
    }
}

/// Returns a request's inputs and rows, if it may be batched.
fn rows_of(request: &QueuedRequest) -> Option<(&[Tensor], u64)> {
    let inputs = request.inputs.as_deref().filter(|_| !request.alone)?;
    Some((inputs, batch::rows(inputs)?))
}

/// Returns a filter that accepts requests compatible with `like`, up to a total number of rows.
fn fits_batch(like: &[Tensor], limit: u64) -> impl FnMut(&QueuedRequest) -> bool + '_ {
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
    shared: &'a SharedEndpoint,
    state: MutexGuard<'a, EndpointState>,
    limit: Duration,
) -> (MutexGuard<'a, EndpointState>, bool) {
    let waited = shared.wake.wait_timeout(state, limit);
    let (state, outcome) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
    (state, outcome.timed_out())
}
