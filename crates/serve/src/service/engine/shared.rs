//! State of an endpoint, shared by its callers and the threads that own its sessions.
//!
//! Invariant: every request is either in the queue, or in the run of one seat, or answered. The
//! lock is held only for bookkeeping, never while a model loads or runs.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use super::backoff::Backoff;
use super::batch::{self, Batching};
use super::choice::{EngineChoice, format_error};
use super::ledger::{Ledger, TooLarge, WakeCallback};
use super::loaded::SessionSource;
use super::model::{Activity, EndpointModel};
use super::queue::FairQueue;
use super::request::{FirstStep, QueuedRequest, RequestResult};

use crate::account::AccountId;
use crate::service::meter::Meter;
use crate::service::{CallError, Isolation, ServiceSettings};
use pkgtool_engine::runtime::process::Stopper;
use pkgtool_engine::runtime::process::sandbox::Sandbox;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::{ByteSums, RunStart};

/// Grace period before an abandoned run is cancelled.
const ABANDONED_RUN_GRACE: Duration = Duration::from_millis(250);

/// Starts the owner thread of a seat.
pub(super) type StartOwner = fn(&Arc<SharedEndpoint>, u64) -> io::Result<JoinHandle<()>>;

/// Parts of the server that an endpoint uses.
#[derive(Debug)]
pub(super) struct Host {
    /// The endpoint's number in the server.
    pub(super) number: u64,
    /// Starts sessions.
    pub(super) source: SessionSource,
    pub(super) ledger: Arc<Ledger>,
    pub(super) start_owner: StartOwner,
    pub(super) meter: Arc<Meter>,
}

/// An endpoint, as its threads see it.
#[derive(Debug)]
pub(super) struct SharedEndpoint {
    /// Its number in the server.
    pub(super) number: u64,
    pub(super) model: EndpointModel,
    pub(super) settings: ServiceSettings,
    pub(super) source: SessionSource,
    pub(super) ledger: Arc<Ledger>,
    /// Metrics of its service, including this endpoint.
    pub(super) meter: Arc<Meter>,
    /// Maximum number of rows of a run, if batching is possible.
    pub(super) rows_limit: Option<u64>,
    /// Error returned to every request when no engine can ever run the model.
    permanent_error: Option<CallError>,
    start_owner: StartOwner,
    state: Mutex<EndpointState>,
    /// Wakes owner threads.
    pub(super) wake: Condvar,
    /// Wakes tasks that wait for a state change.
    changed: Notify,
}

/// The mutable state.
#[derive(Debug)]
pub(super) struct EndpointState {
    pub(super) queue: FairQueue<QueuedRequest>,
    pub(super) phase: Phase,
    /// Owner threads.
    pub(super) seats: BTreeMap<u64, Seat>,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) choice: EngineChoice,
    /// How products of 8-bit numbers are summed; known after a run.
    pub(super) byte_sums: Option<ByteSums>,
    /// The sandbox of its sessions; known after a run.
    pub(super) sandbox: Option<Sandbox>,
    pub(super) batching: Batching,
    pub(super) backoff: Backoff,
    /// Reason for missing instances, and the time until which requests are rejected. It stays until
    /// a run succeeds.
    pub(super) refusal: Option<(Instant, CallError)>,
    /// True if the model must be tried before its next request, because its first run crashed.
    pub(super) is_doubtful: bool,
    /// Number of owner threads that wait for more requests to batch.
    pub(super) gathering: usize,
    /// Peak memory of a session, in bytes.
    pub(super) measured: Option<u64>,
    pub(super) runs: u64,
    pub(super) crashes: u64,
    /// Number of crashed sessions that are not replaced yet.
    pub(super) missing: u64,
    next: u64,
}

/// Life cycle of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Rejects new requests and finishes the pending ones.
    Draining,
    /// Answers nothing any more.
    Stopped,
}

/// An owner thread.
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// Handle to stop its process, and the process id.
    pub(super) process: Option<(Stopper, u32)>,
    pub(super) loaded: bool,
    /// Memory that its session is counted with, in bytes.
    pub(super) bytes: u64,
    pub(super) run: Option<SeatRun>,
    /// True if the server stopped its process.
    pub(super) stopped: bool,
}

/// The run of a seat.
#[derive(Debug, Default)]
pub(super) struct SeatRun {
    /// Requests that still wait for its answer.
    pub(super) live: Vec<u64>,
    /// True if it continues without waiting requests, because it proves something for later ones.
    pub(super) protected: bool,
    /// The last request that was cancelled.
    pub(super) last_cancelled: Option<u64>,
    /// Set while the session is reserved between two steps of a conversation instead of running.
    pub(super) between: Option<Reservation>,
}

/// State that a run's last cancelled request leaves behind.
enum Abandoned {
    /// A reserved session, whose thread must be notified.
    ReservedSession,
    /// An abandoned run.
    Running,
}

/// A session reserved for the next step of a conversation.
#[derive(Debug, Default)]
pub(super) struct Reservation {
    /// The next step, once submitted.
    pub(super) asked: Option<QueuedRequest>,
    /// End of its rest, if it is resting. Others may take the session meanwhile.
    pub(super) rests: Option<Instant>,
}

/// A request from the caller's side. Dropping it before the answer cancels the request.
#[derive(Debug)]
pub(super) struct Ticket<'a> {
    pub(super) shared: &'a Arc<SharedEndpoint>,
    pub(super) id: u64,
    pub(super) caller: AccountId,
    pub(super) receiver: oneshot::Receiver<RequestResult>,
    pub(super) answered: bool,
}

impl SharedEndpoint {
    pub(super) fn new(model: EndpointModel, settings: ServiceSettings, host: Host) -> Arc<Self> {
        let Host {
            number,
            source,
            ledger,
            start_owner,
            meter,
        } = host;
        let rows_limit = batch::rows_limit(&model.signature);
        let shares = settings.batch_max_size > 1 && model.carrying.is_empty();
        let rows_limit = rows_limit.filter(|_| shares);
        let too_large = ledger
            .check(model.estimated_bytes())
            .err()
            .map(too_large_error);
        let state = EndpointState {
            queue: FairQueue::default(),
            phase: Phase::Open,
            seats: BTreeMap::new(),
            threads: Vec::new(),
            choice: EngineChoice::new(model.format, model.backend),
            byte_sums: None,
            sandbox: None,
            batching: match rows_limit {
                Some(_) => Batching::Untested,
                None => Batching::Off,
            },
            backoff: Backoff::default(),
            refusal: None,
            is_doubtful: false,
            gathering: 0,
            measured: None,
            runs: 0,
            crashes: 0,
            missing: 0,
            next: 0,
        };
        Arc::new(Self {
            number,
            permanent_error: format_error(model.format).or(too_large),
            model,
            settings,
            source,
            ledger,
            meter,
            rows_limit,
            start_owner,
            state: Mutex::new(state),
            wake: Condvar::new(),
            changed: Notify::new(),
        })
    }

    /// Returns the reason for missing instances, as far as known.
    pub(super) fn failure(&self) -> Option<CallError> {
        let known = self.permanent_error.clone();
        let failed = || self.lock().refusal.as_ref().map(|(_, error)| error.clone());
        known.or_else(failed).map(|error| self.without_paths(error))
    }

    /// Returns whether requests are rejected at once.
    pub(super) fn is_pausing(&self) -> bool {
        self.permanent_error.is_some() || self.lock().refusal(Instant::now()).is_some()
    }

    /// Removes the server's directories from an error.
    fn without_paths(&self, error: CallError) -> CallError {
        let source = &self.source;
        let files = [
            Some(&self.model.model),
            source.library.as_ref(),
            Some(&source.program),
        ];
        error.without_directories(files.into_iter().flatten())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, EndpointState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a request. A request without inputs only asks for a session and bypasses the queue
    /// limit.
    pub(super) fn submit(
        self: &Arc<Self>,
        caller: AccountId,
        inputs: Option<Vec<Tensor>>,
        first: Option<FirstStep>,
    ) -> Result<Ticket<'_>, CallError> {
        if let Some(error) = &self.permanent_error {
            return Err(self.without_paths(error.clone()));
        }
        let (answer, receiver) = oneshot::channel();
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(CallError::Stopped);
        }
        let limit = self.settings.queue.max(1);
        // Requests that free sessions are about to take do not count as waiting.
        if state.queue.len() >= limit + state.free() && inputs.is_some() {
            return Err(CallError::QueueFull { limit });
        }
        let id = state.number();
        let (terms, begins) = match first {
            Some(first) => (Some(first.terms), first.begins),
            None => (None, RunStart::Anew),
        };
        state.queue.push(QueuedRequest {
            id,
            caller,
            inputs,
            since: Instant::now(),
            alone: terms.is_some(),
            begins,
            terms,
            answer,
        });
        self.staff(&mut state);
        drop(state);
        // Wake all threads: a thread in its backoff must not consume the wakeup of another one.
        self.wake.notify_all();
        Ok(Ticket {
            shared: self,
            id,
            caller,
            receiver,
            answered: false,
        })
    }

    /// Opens seats while more requests wait than threads can take.
    pub(super) fn staff(self: &Arc<Self>, state: &mut EndpointState) {
        loop {
            let share = self.settings.batch_max_size.max(1) - 1;
            let spoken_for = state.free() + state.gathering * share;
            // Until a candidate has run the model, more threads would only repeat its attempts.
            let most = if state.choice.is_made() {
                self.settings.instances.max(1)
            } else {
                1
            };
            if state.queue.len() <= spoken_for || state.seats.len() >= most {
                return;
            }
            let seat = state.number();
            match (self.start_owner)(self, seat) {
                Ok(thread) => {
                    state.seats.insert(seat, Seat::default());
                    state.threads.retain(|thread| !thread.is_finished());
                    state.threads.push(thread);
                }
                Err(error) => {
                    tracing::warn!(service = self.model.service, %error, "cannot start a thread for a session");
                    if state.seats.is_empty() {
                        let error =
                            CallError::NoInstances(format!("cannot start a thread: {error}"));
                        state.refuse(&error);
                    }
                    return;
                }
            }
        }
    }

    /// Removes a cancelled request and stops a run that this abandons.
    pub(super) fn give_up(self: &Arc<Self>, id: u64, caller: AccountId) {
        let mut state = self.lock();
        let removed = state.queue.remove(id, caller);
        let left = removed.is_none().then(|| state.leave_run(id)).flatten();
        let is_empty = state.queue.is_empty();
        drop(state);
        self.notify_change();
        match left {
            Some(Abandoned::ReservedSession) => self.wake.notify_all(),
            Some(Abandoned::Running) => self.stop_later(id),
            None => {}
        }
        if is_empty {
            // A thread that waits for memory may no longer need it.
            self.ledger.wake();
        }
        drop(removed);
    }

    /// Stops the run that this request abandoned, unless it ends within a grace period. Most runs
    /// take less time than loading another session.
    fn stop_later(self: &Arc<Self>, id: u64) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return self.lock().stop_left_by(id);
        };
        let shared = Arc::downgrade(self);
        runtime.spawn(async move {
            tokio::time::sleep(ABANDONED_RUN_GRACE).await;
            if let Some(shared) = shared.upgrade() {
                shared.lock().stop_left_by(id);
            }
        });
    }

    /// Rejects new requests.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Draining;
        }
    }

    /// Stops everything; waiting and running requests fail.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.phase = Phase::Stopped;
        state.refuse(&CallError::Stopped);
        for seat in state.seats.values_mut() {
            seat.stop();
        }
        drop(state);
        self.wake.notify_all();
        self.ledger.wake();
        self.notify_change();
    }

    /// Waits until `is_so` holds.
    pub(super) async fn until(&self, is_so: impl Fn(&EndpointState) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Subscribe before the check.
            changed.as_mut().enable();
            if is_so(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn notify_change(&self) {
        self.changed.notify_waiters();
    }

    /// Returns whether all threads have ended, except those that cannot be waited for because a
    /// model hangs in this process.
    pub(super) fn is_over(&self, state: &EndpointState) -> bool {
        let is_lost = |seat: &Seat| {
            self.settings.isolation == Isolation::Thread
                && seat.run.as_ref().is_some_and(|run| run.live.is_empty())
        };
        state.seats.values().all(is_lost)
    }

    /// Returns the bytes to reserve for a session.
    pub(super) fn need(&self, state: &EndpointState) -> u64 {
        let need = state
            .measured
            .unwrap_or_else(|| self.model.estimated_bytes());
        // A session that has run fits the budget, even if one request temporarily enlarged it.
        need.min(self.ledger.budget())
    }

    /// Returns a callback that wakes the owner threads without keeping the endpoint alive.
    pub(super) fn bell(self: &Arc<Self>) -> WakeCallback {
        let shared: Weak<Self> = Arc::downgrade(self);
        Arc::new(move || {
            if let Some(shared) = shared.upgrade() {
                let mut state = shared.lock();
                if shared.source.gives_way() {
                    // Its requests run again later.
                    state.seats.values_mut().for_each(Seat::stop);
                }
                drop(state);
                shared.wake.notify_all();
            }
        })
    }
}

impl EndpointState {
    /// Returns a new number.
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn activity(&self) -> Activity {
        Activity {
            waiting: self.queue.len(),
            running: self.running(),
            sessions: self.sessions(),
            runs: self.runs,
            crashes: self.crashes,
        }
    }

    pub(super) fn running(&self) -> usize {
        let runs = self.seats.values().filter_map(|seat| seat.run.as_ref());
        let rests = |run: &&SeatRun| run.between.as_ref().is_some_and(|it| it.rests.is_some());
        runs.filter(|run| !rests(run))
            .map(|run| run.live.len())
            .sum()
    }

    pub(super) fn sessions(&self) -> usize {
        self.seats.values().filter(|seat| seat.loaded).count()
    }

    /// Returns the number of idle threads, each of which is about to check the queue.
    pub(super) fn free(&self) -> usize {
        let runs_nothing = |seat: &&Seat| seat.run.is_none();
        self.seats.values().filter(runs_nothing).count()
    }

    /// Fails all waiting requests with this error.
    pub(super) fn refuse(&mut self, error: &CallError) {
        for request in self.queue.clear() {
            request.finish(Err(error.clone()));
        }
    }

    /// Returns the error that currently rejects all requests, if any.
    pub(super) fn refusal(&self, now: Instant) -> Option<CallError> {
        let (until, error) = self.refusal.as_ref()?;
        (now < *until).then(|| error.clone())
    }

    /// Handles a failure to load. Waiting requests fail, unless another session can answer them. If
    /// no engine can load the model, requests during the backoff fail too. A first crash may have
    /// an outside cause, so only the next request fails.
    pub(super) fn loading_failed(&mut self, error: &CallError) -> Duration {
        if self.sessions() == 0 && matches!(error, CallError::NoInstances(_)) {
            return self.pause(error.clone());
        }
        let now = Instant::now();
        let until = self.backoff.fail(now);
        if self.sessions() == 0 {
            if matches!(error, CallError::Crashed(_)) && !self.backoff.is_repeated() {
                if let Some(request) = self.queue.pop() {
                    request.finish(Err(error.clone()));
                }
            } else {
                self.refuse(error);
            }
        }
        until - now
    }

    /// Handles missing instances: fails waiting requests, and rejects new ones until the next
    /// attempt.
    pub(super) fn pause(&mut self, error: CallError) -> Duration {
        let now = Instant::now();
        let until = self.backoff.fail(now);
        self.refuse(&error);
        self.refusal = Some((until, error));
        until - now
    }

    /// Removes a cancelled request from its run. Returns the remaining state if it was the last
    /// one.
    fn leave_run(&mut self, id: u64) -> Option<Abandoned> {
        let runs = self.seats.values_mut().filter_map(|seat| seat.run.as_mut());
        for run in runs {
            let Some(place) = run.live.iter().position(|live| *live == id) else {
                continue;
            };
            run.live.swap_remove(place);
            if run.between.is_some() {
                return Some(Abandoned::ReservedSession);
            }
            run.last_cancelled = Some(id);
            return run.is_abandoned().then_some(Abandoned::Running);
        }
        None
    }

    /// Stops the session whose run this request abandoned, if it still is that run.
    fn stop_left_by(&mut self, id: u64) {
        let was_left = |seat: &&mut Seat| {
            let run = seat.run.as_ref();
            run.is_some_and(|run| run.last_cancelled == Some(id) && run.is_abandoned())
        };
        if let Some(seat) = self.seats.values_mut().find(was_left) {
            seat.stop();
        }
    }
}

impl SeatRun {
    fn is_abandoned(&self) -> bool {
        self.live.is_empty() && !self.protected && self.between.is_none()
    }
}

impl Seat {
    /// Stops its process. A thread cannot be stopped.
    pub(super) fn stop(&mut self) {
        if let Some((stopper, _)) = &self.process {
            self.stopped = true;
            stopper.stop();
        }
    }
}

impl Ticket<'_> {
    /// Waits for the answer, at most for `timeout`.
    pub(super) async fn answer(mut self, timeout: Option<Duration>) -> RequestResult {
        let received = match timeout {
            None => (&mut self.receiver).await,
            Some(after) => match tokio::time::timeout(after, &mut self.receiver).await {
                Ok(received) => received,
                Err(_) => return Err(CallError::Timeout { after }),
            },
        };
        self.answered = true;
        let ended = |_| Err(CallError::Crashed("its thread ended".to_owned()));
        received
            .unwrap_or_else(ended)
            .map_err(|error| self.shared.without_paths(error))
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.shared.give_up(self.id, self.caller);
        }
    }
}

/// Returns the error of a model that exceeds the memory budget.
pub(super) fn too_large_error(too_large: TooLarge) -> CallError {
    let TooLarge { bytes, budget } = too_large;
    CallError::NoInstances(format!(
        "the model needs about {bytes} bytes of memory, and the limit for all models of the server is {budget} \
         together; raise that limit or offer a smaller model"
    ))
}
