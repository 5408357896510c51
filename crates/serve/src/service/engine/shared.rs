//! State of an endpoint, shared by its callers and the threads that own its sessions.
//!
//! Invariant: the lock of the state is held only for bookkeeping, never while a model loads or runs.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use super::backoff::Backoff;
use super::batch::{self, Batching};
use super::choice::{EngineChoices, format_error};
use super::devices::DeviceFollower;
use super::ledger::{Ledger, TooLarge, WakeCallback};
use super::loaded::SessionSource;
use super::model::EndpointModel;
use super::place::{Placing, SessionPlace};
use super::queue::FairQueue;
use super::request::{FirstStep, QueuedRequest, RequestResult};
use super::state::{Abandoned, EndpointState, Phase, Seat};

use crate::account::AccountId;
use crate::service::meter::Meter;
use crate::service::{CallError, Isolation, ServiceSettings};
use pkgtool_engine::RunStart;
use pkgtool_engine::tensor::Tensor;

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
    /// The same error of a model that needs more memory than this machine gives. Devices have their own memory.
    too_large_here: Option<CallError>,
    start_owner: StartOwner,
    state: Mutex<EndpointState>,
    /// Wakes owner threads.
    pub(super) wake: Condvar,
    /// Wakes tasks that wait for a state change.
    changed: Notify,
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
        let too_large = ledger.check(model.estimated_bytes()).err();
        let state = EndpointState {
            queue: FairQueue::default(),
            phase: Phase::Open,
            seats: BTreeMap::new(),
            threads: Vec::new(),
            choices: EngineChoices::new(model.format, model.backend),
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
            permanent_error: format_error(model.format),
            too_large_here: too_large.map(|it| too_large_error(it, &SessionPlace::Here)),
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
        let failed = || self.lock().refusal.as_ref().map(|(_, error)| error.clone());
        let known = self.obstacle().or_else(failed);
        known.map(|error| self.without_paths(error))
    }

    /// Returns whether requests are rejected at once.
    pub(super) fn is_pausing(&self) -> bool {
        self.obstacle().is_some() || self.lock().refusal(Instant::now()).is_some()
    }

    /// Returns the error of every request while no session can live anywhere.
    fn obstacle(&self) -> Option<CallError> {
        if self.permanent_error.is_some() {
            return self.permanent_error.clone();
        }
        let devices = &self.source.devices;
        match devices.wanted(self.model.backend, &self.settings) {
            Err(Placing::Nowhere(absence)) => {
                (!absence.is_expected).then_some(CallError::Away(absence.reason))
            }
            Err(Placing::At(_)) => self.too_large_here.clone(),
            Ok(_) => None,
        }
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
        if let Some(error) = self.obstacle() {
            return Err(self.without_paths(error));
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
            was_lost: false,
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
            let most = if state.choices.is_made() {
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
            self.wake_ledgers();
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
        self.wake_ledgers();
        self.notify_change();
    }

    /// Makes those who wait for memory check again.
    fn wake_ledgers(&self) {
        self.ledger.wake();
        self.source.devices.wake_ledgers();
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

    /// Returns the bytes to reserve for a session in a ledger.
    pub(super) fn need(&self, state: &EndpointState, ledger: &Ledger) -> u64 {
        match state.measured {
            // A session that has run fits the budget, even if one request temporarily enlarged it.
            Some(measured) => measured.min(ledger.budget()),
            None => self.model.estimated_bytes(),
        }
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

impl DeviceFollower for SharedEndpoint {
    /// Lets its threads look again where sessions can live. Earlier failures were those of another place.
    fn devices_changed(&self) {
        let mut state = self.lock();
        state.refusal = None;
        state.backoff.reset();
        drop(state);
        self.wake.notify_all();
        self.notify_change();
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
pub(super) fn too_large_error(too_large: TooLarge, place: &SessionPlace) -> CallError {
    let TooLarge { bytes, budget } = too_large;
    let of = match place {
        SessionPlace::Here => "of the server",
        SessionPlace::Device(_) => "on its device",
    };
    CallError::NoInstances(format!(
        "the model needs about {bytes} bytes of memory, and the limit for all models {of} is {budget} \
         together; raise that limit or offer a smaller model"
    ))
}
