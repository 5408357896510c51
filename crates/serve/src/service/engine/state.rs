//! The state of an endpoint: its queue, its seats, and the choices that its runs have made.
//!
//! Invariant: every request is either in the queue, or in the run of one seat, or answered.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::batch::Batching;
use super::choice::EngineChoices;
use super::model::Activity;
use super::queue::FairQueue;
use super::request::QueuedRequest;
use crate::service::CallError;
use pkgtool_engine::ByteSums;
use pkgtool_engine::runtime::process::Stopper;
use pkgtool_engine::runtime::process::sandbox::Sandbox;

/// The mutable state.
#[derive(Debug)]
pub(super) struct EndpointState {
    pub(super) queue: FairQueue<QueuedRequest>,
    pub(super) phase: Phase,
    /// Owner threads.
    pub(super) seats: BTreeMap<u64, Seat>,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) choices: EngineChoices,
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
    pub(super) next: u64,
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
    /// The device of its session, or of the one that is being loaded; `None` for this machine.
    pub(super) device: Option<usize>,
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
pub(super) enum Abandoned {
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

impl EndpointState {
    /// Returns a new number.
    pub(super) fn number(&mut self) -> u64 {
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

    /// Returns the number of sessions that live, or are being loaded, on a device.
    pub(super) fn sessions_at(&self, device: usize) -> usize {
        let is_there = |seat: &&Seat| seat.device == Some(device);
        self.seats.values().filter(is_there).count()
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
    pub(super) fn leave_run(&mut self, id: u64) -> Option<Abandoned> {
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
    pub(super) fn stop_left_by(&mut self, id: u64) {
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
