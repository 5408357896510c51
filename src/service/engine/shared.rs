//! What the callers of an endpoint and the threads that own its sessions share.
//!
//! Invariant: every request is either in the queue, or in the run of one seat, or answered. The lock
//! is held for bookkeeping only, never while a model loads or runs.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use super::backoff::Backoff;
use super::batch::{self, Batching};
use super::choice::{Choice, refused_format};
use super::ledger::{Bell, Ledger, TooLarge};
use super::loaded::Source;
use super::model::{Activity, EndpointModel};
use super::queue::Queue;
use super::request::{First, Outcome, Waiting};

use crate::account::AccountId;
use crate::engine::{Begins, ByteSums};
use crate::runtime::process::Stopper;
use crate::runtime::process::sandbox::Sandbox;
use crate::service::meter::Meter;
use crate::service::{CallError, Isolation, ServiceSettings};
use crate::tensor::Tensor;

/// What a session takes beyond its weights: the process, the engine's code, small tensors.
const BESIDE_WEIGHTS: u64 = 32 << 20;

/// How long a run goes on for nobody.
const FOR_NOBODY: Duration = Duration::from_millis(250);

/// Starts a thread that owns the session of a seat.
pub(super) type StartOwner = fn(&Arc<Shared>, u64) -> io::Result<JoinHandle<()>>;

/// What an endpoint has from its server.
#[derive(Debug)]
pub(super) struct Host {
    /// The endpoint's number there.
    pub(super) number: u64,
    /// Where sessions come from.
    pub(super) source: Source,
    pub(super) ledger: Arc<Ledger>,
    pub(super) start_owner: StartOwner,
    pub(super) meter: Arc<Meter>,
}

/// An endpoint, as its threads see it.
#[derive(Debug)]
pub(super) struct Shared {
    /// Its number in the server.
    pub(super) number: u64,
    pub(super) model: EndpointModel,
    pub(super) settings: ServiceSettings,
    pub(super) source: Source,
    pub(super) ledger: Arc<Ledger>,
    /// What its service did, this endpoint's part included.
    pub(super) meter: Arc<Meter>,
    /// Most rows of a run, if runs may be shared at all.
    pub(super) rows_limit: Option<u64>,
    /// What every request is answered with, if nothing will ever run the model.
    hopeless: Option<CallError>,
    start_owner: StartOwner,
    state: Mutex<State>,
    /// Wakes owner threads.
    pub(super) wake: Condvar,
    /// Wakes those who wait for the end of something.
    changed: Notify,
}

/// What changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) queue: Queue<Waiting>,
    pub(super) phase: Phase,
    /// Owner threads.
    pub(super) seats: BTreeMap<u64, Seat>,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) choice: Choice,
    /// How products of 8-bit numbers are added up, once a run has shown it.
    pub(super) byte_sums: Option<ByteSums>,
    /// The sandbox of its sessions, once one has run.
    pub(super) sandbox: Option<Sandbox>,
    pub(super) batching: Batching,
    pub(super) backoff: Backoff,
    /// Why there is no active instance, and until when requests are refused because of it. It stays until a run
    /// succeeds.
    pub(super) refusal: Option<(Instant, CallError)>,
    /// Whether the model is to be tried before its next request: its first run ended its process.
    pub(super) is_doubtful: bool,
    /// Owner threads that wait for more requests to share a run.
    pub(super) gathering: usize,
    /// What a session took at most.
    pub(super) measured: Option<u64>,
    pub(super) runs: u64,
    pub(super) crashes: u64,
    /// Sessions that died and that no other has replaced yet.
    pub(super) missing: u64,
    next: u64,
}

/// Life of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// No more requests; those it has are answered.
    Draining,
    /// Nothing is answered any more.
    Stopped,
}

/// An owner thread.
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// What ends its process, and that process's number.
    pub(super) process: Option<(Stopper, u32)>,
    pub(super) loaded: bool,
    /// Bytes that its session is counted with.
    pub(super) bytes: u64,
    pub(super) run: Option<Run>,
    /// Its process was ended by us.
    pub(super) stopped: bool,
}

/// What a seat runs.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Requests that still wait for its answer.
    pub(super) live: Vec<u64>,
    /// It goes on without them: it proves something for later.
    pub(super) protected: bool,
    /// The last of them to give up.
    pub(super) left_by: Option<u64>,
    /// Nothing runs: the session is kept between two steps of a conversation.
    pub(super) between: Option<Between>,
}

/// What the last request of a run leaves.
enum Left {
    /// A session that was kept for it: its thread has to know.
    Kept,
    /// A run that nobody waits for.
    Running,
}

/// A session that is kept for the next step of a conversation.
#[derive(Debug, Default)]
pub(super) struct Between {
    /// The step, once it was asked for.
    pub(super) asked: Option<Waiting>,
    /// Until when it rests, if it does: others may have the session meanwhile.
    pub(super) rests: Option<Instant>,
}

/// A request from the caller's side; dropped without an answer, it is given up.
#[derive(Debug)]
pub(super) struct Ticket<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) id: u64,
    pub(super) caller: AccountId,
    pub(super) receiver: oneshot::Receiver<Outcome>,
    pub(super) answered: bool,
}

impl Shared {
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
        let too_large = ledger.check(estimate(&model)).err().map(of_size);
        let state = State {
            queue: Queue::default(),
            phase: Phase::Open,
            seats: BTreeMap::new(),
            threads: Vec::new(),
            choice: Choice::new(model.format, model.backend),
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
            hopeless: refused_format(model.format).or(too_large),
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

    /// Why there is no active instance, as far as is known.
    pub(super) fn failure(&self) -> Option<CallError> {
        let known = self.hopeless.clone();
        let failed = || self.lock().refusal.as_ref().map(|(_, error)| error.clone());
        known.or_else(failed).map(|error| self.without_paths(error))
    }

    /// Whether requests are refused at once.
    pub(super) fn is_pausing(&self) -> bool {
        self.hopeless.is_some() || self.lock().refusal(Instant::now()).is_some()
    }

    /// The error without the server's directories.
    fn without_paths(&self, error: CallError) -> CallError {
        let source = &self.source;
        let files = [
            Some(&self.model.model),
            source.library.as_ref(),
            Some(&source.program),
        ];
        error.without_directories(files.into_iter().flatten())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request. Without inputs it asks for a session only, and always has room.
    pub(super) fn submit(
        self: &Arc<Self>,
        caller: AccountId,
        inputs: Option<Vec<Tensor>>,
        first: Option<First>,
    ) -> Result<Ticket<'_>, CallError> {
        if let Some(error) = &self.hopeless {
            return Err(self.without_paths(error.clone()));
        }
        let (answer, receiver) = oneshot::channel();
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(CallError::Stopped);
        }
        let limit = self.settings.queue.max(1);
        // What a free session is about to take does not wait.
        if state.queue.len() >= limit + state.free() && inputs.is_some() {
            return Err(CallError::QueueFull { limit });
        }
        let id = state.number();
        let (terms, begins) = match first {
            Some(first) => (Some(first.terms), first.begins),
            None => (None, Begins::Anew),
        };
        state.queue.push(Waiting {
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
        // All of them: one that pauses before it loads again must not take another one's call.
        self.wake.notify_all();
        Ok(Ticket {
            shared: self,
            id,
            caller,
            receiver,
            answered: false,
        })
    }

    /// Opens seats while more wait than there are threads to take it.
    pub(super) fn staff(self: &Arc<Self>, state: &mut State) {
        loop {
            let share = self.settings.batch_max_size.max(1) - 1;
            let spoken_for = state.free() + state.gathering * share;
            // Until one has proved the choice of an engine, others would only repeat its attempts.
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
                    tracing::warn!(service = self.model.service, %error, "no thread for a session");
                    if state.seats.is_empty() {
                        let error = CallError::NoInstances(format!("no thread: {error}"));
                        state.refuse(&error);
                    }
                    return;
                }
            }
        }
    }

    /// Removes a request that nobody waits for any more, and stops what goes on for nobody.
    pub(super) fn give_up(self: &Arc<Self>, id: u64, caller: AccountId) {
        let mut state = self.lock();
        let removed = state.queue.remove(id, caller);
        let left = removed.is_none().then(|| state.leave_run(id)).flatten();
        let is_empty = state.queue.is_empty();
        drop(state);
        self.tell_change();
        match left {
            Some(Left::Kept) => self.wake.notify_all(),
            Some(Left::Running) => self.stop_later(id),
            None => {}
        }
        if is_empty {
            // A thread that waits for room need not any more.
            self.ledger.wake();
        }
        drop(removed);
    }

    /// Stops the run that this request was the last to leave, unless it ends soon: most runs take less
    /// time than another session would.
    fn stop_later(self: &Arc<Self>, id: u64) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return self.lock().stop_left_by(id);
        };
        let shared = Arc::downgrade(self);
        runtime.spawn(async move {
            tokio::time::sleep(FOR_NOBODY).await;
            if let Some(shared) = shared.upgrade() {
                shared.lock().stop_left_by(id);
            }
        });
    }

    /// Takes no more requests.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Draining;
        }
    }

    /// Ends everything: what waits and runs is told so.
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
        self.tell_change();
    }

    /// Waits until `is_so` holds.
    pub(super) async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // First listen, then look.
            changed.as_mut().enable();
            if is_so(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn tell_change(&self) {
        self.changed.notify_waiters();
    }

    /// Ends when all threads have ended that can be waited for: one that a model holds in this
    /// process cannot.
    pub(super) fn is_over(&self, state: &State) -> bool {
        let is_lost = |seat: &Seat| {
            self.settings.isolation == Isolation::Thread
                && seat.run.as_ref().is_some_and(|run| run.live.is_empty())
        };
        state.seats.values().all(is_lost)
    }

    /// Bytes to reserve for a session.
    pub(super) fn need(&self, state: &State) -> u64 {
        let need = state.measured.unwrap_or_else(|| estimate(&self.model));
        // What ran once fits, though one request may have made it large.
        need.min(self.ledger.budget())
    }

    /// Wakes the owner threads, however long they may live.
    pub(super) fn bell(self: &Arc<Self>) -> Bell {
        let shared: Weak<Self> = Arc::downgrade(self);
        Arc::new(move || {
            if let Some(shared) = shared.upgrade() {
                drop(shared.lock());
                shared.wake.notify_all();
            }
        })
    }
}

impl State {
    /// A new number.
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
        let rests = |run: &&Run| run.between.as_ref().is_some_and(|it| it.rests.is_some());
        runs.filter(|run| !rests(run))
            .map(|run| run.live.len())
            .sum()
    }

    pub(super) fn sessions(&self) -> usize {
        self.seats.values().filter(|seat| seat.loaded).count()
    }

    /// Threads that run nothing: each is about to look into the queue.
    pub(super) fn free(&self) -> usize {
        let runs_nothing = |seat: &&Seat| seat.run.is_none();
        self.seats.values().filter(runs_nothing).count()
    }

    /// Answers all that waits with this.
    pub(super) fn refuse(&mut self, error: &CallError) {
        for request in self.queue.clear() {
            request.finish(Err(error.clone()));
        }
    }

    /// The refusal that holds now.
    pub(super) fn refusal(&self, now: Instant) -> Option<CallError> {
        let (until, error) = self.refusal.as_ref()?;
        (now < *until).then(|| error.clone())
    }

    /// A session could not be loaded: what waits is told why, unless another one answers. While no
    /// engine has the model, those who come within the back-off are told the same. A process that
    /// died once may have been killed by anything: then only the next request is told.
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

    /// There is no active instance: refuses what waits, and what comes before the next attempt.
    pub(super) fn pause(&mut self, error: CallError) -> Duration {
        let now = Instant::now();
        let until = self.backoff.fail(now);
        self.refuse(&error);
        self.refusal = Some((until, error));
        until - now
    }

    /// What a request leaves that was the last of its run.
    fn leave_run(&mut self, id: u64) -> Option<Left> {
        let runs = self.seats.values_mut().filter_map(|seat| seat.run.as_mut());
        for run in runs {
            let Some(place) = run.live.iter().position(|live| *live == id) else {
                continue;
            };
            run.live.swap_remove(place);
            if run.between.is_some() {
                return Some(Left::Kept);
            }
            run.left_by = Some(id);
            return run.is_for_nobody().then_some(Left::Running);
        }
        None
    }

    /// Ends the session whose run this request was the last to leave, if it still is that run.
    fn stop_left_by(&mut self, id: u64) {
        let was_left = |seat: &&mut Seat| {
            let run = seat.run.as_ref();
            run.is_some_and(|run| run.left_by == Some(id) && run.is_for_nobody())
        };
        if let Some(seat) = self.seats.values_mut().find(was_left) {
            seat.stop();
        }
    }
}

impl Run {
    fn is_for_nobody(&self) -> bool {
        self.live.is_empty() && !self.protected && self.between.is_none()
    }
}

impl Seat {
    /// Ends its process. A thread cannot be stopped, and is waited for.
    pub(super) fn stop(&mut self) {
        if let Some((stopper, _)) = &self.process {
            self.stopped = true;
            stopper.stop();
        }
    }
}

impl Ticket<'_> {
    /// Waits for the answer, at most `timeout`.
    pub(super) async fn answer(mut self, timeout: Option<Duration>) -> Outcome {
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

/// Bytes that a session will take, before it has run.
fn estimate(model: &EndpointModel) -> u64 {
    let weights = model.weight_bytes;
    let with_copies = weights.saturating_add(weights / 10 * 3);
    with_copies.saturating_add(BESIDE_WEIGHTS)
}

/// The answer for a model beyond the budget.
pub(super) fn of_size(too_large: TooLarge) -> CallError {
    let TooLarge { bytes, budget } = too_large;
    CallError::NoInstances(format!(
        "the model needs about {bytes} bytes of memory, and the server's models may take {budget} \
         together; raise that limit or offer a smaller model"
    ))
}
