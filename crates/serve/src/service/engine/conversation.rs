//! A conversation: several runs of one session, where each run continues from the state (the KV
//! cache) that the previous one left.
//!
//! The first step waits in the endpoint's queue like any request. The session that answered it is
//! then reserved for the following steps. Invariant: no other caller's run takes place between two
//! steps. An idle timeout limits how long a session is reserved, so an abandoned conversation does
//! not hold it forever.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::owner::{Owner, wait};
use super::request::{FirstStep, QueuedRequest, ReservationTerms};
use super::shared::{SharedEndpoint, Ticket};
use super::state::{EndpointState, Phase, Reservation, SeatRun};
use crate::account::AccountId;
use crate::service::CallError;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::{Lanes, RunStart};

/// Time that a request waits for another session to load before a resting conversation gives up its
/// session.
const MAX_LOAD_WAIT: Duration = Duration::from_secs(1);

const REST_EXCEEDED: &str = "it exceeded its maximum rest";

/// Several runs of one session of an endpoint. Dropping it releases the session.
#[derive(Debug)]
pub struct EndpointConversation {
    shared: Arc<SharedEndpoint>,
    caller: AccountId,
    terms: ReservationTerms,
    /// Its number in the endpoint, once its first step was submitted.
    number: Option<u64>,
}

impl EndpointConversation {
    pub(super) fn new(shared: Arc<SharedEndpoint>, caller: AccountId, idle: Duration) -> Self {
        Self {
            shared,
            caller,
            terms: ReservationTerms {
                idle,
                ended: Arc::default(),
            },
            number: None,
        }
    }

    /// Runs the next step. `inputs` fit the endpoint's signature. The first step starts from an
    /// empty state and may wait for a session; each later step continues from the previous one. A
    /// step that fails, or whose future is dropped, ends the conversation.
    pub async fn run(
        &mut self,
        inputs: Vec<Tensor>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Tensor>, CallError> {
        self.step(RunStart::AsLeft, inputs, timeout).await
    }

    /// Runs the next step from an explicit part of the previous state. The first step always starts
    /// from an empty state; its lanes keep nothing.
    pub async fn step(
        &mut self,
        begins: RunStart,
        inputs: Vec<Tensor>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Tensor>, CallError> {
        let ticket = match self.number {
            None => {
                let first = FirstStep {
                    terms: self.terms.clone(),
                    begins: first(begins),
                };
                let ticket = self.shared.submit(self.caller, Some(inputs), Some(first))?;
                self.number = Some(ticket.id);
                ticket
            }
            Some(number) => self.next(number, begins, inputs)?,
        };
        ticket.answer(timeout).await
    }

    /// Lets the conversation rest until its next step, for at most `longest`. Its session stays
    /// reserved unless others need it or its memory; if it was taken, the next step returns
    /// [`CallError::Over`]. A resting conversation does not count as running.
    pub fn rest(&self, longest: Duration) {
        let Some(number) = self.number else { return };
        let mut state = self.shared.lock();
        if let Some(between) = state.between(number) {
            between.rests = Some(Instant::now() + longest);
        }
        drop(state);
        self.shared.wake.notify_all();
        self.shared.notify_change();
    }

    /// Passes the step to the thread that holds the session, if it still does.
    fn next(
        &self,
        number: u64,
        begins: RunStart,
        inputs: Vec<Tensor>,
    ) -> Result<Ticket<'_>, CallError> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let Some(between) = state.between(number) else {
            return Err(self.why_ended());
        };
        let (answer, receiver) = oneshot::channel();
        between.asked = Some(QueuedRequest {
            id: number,
            caller: self.caller,
            inputs: Some(inputs),
            since: Instant::now(),
            alone: true,
            begins,
            was_lost: false,
            terms: Some(self.terms.clone()),
            answer,
        });
        drop(state);
        shared.wake.notify_all();
        Ok(Ticket {
            shared,
            id: number,
            caller: self.caller,
            receiver,
            answered: false,
        })
    }

    fn why_ended(&self) -> CallError {
        let ended = self.terms.ended.get().cloned();
        ended.unwrap_or_else(|| {
            CallError::Over("a step failed or was cancelled; start a new one".to_owned())
        })
    }
}

impl Drop for EndpointConversation {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared.give_up(number, self.caller);
        }
    }
}

impl EndpointState {
    /// Reserves the session of a seat for the conversation whose step has just ended.
    pub(super) fn keep(&mut self, seat: u64, live: Vec<u64>) {
        if let Some(seat) = self.seats.get_mut(&seat) {
            seat.run = Some(SeatRun {
                live,
                between: Some(Reservation::default()),
                ..SeatRun::default()
            });
        }
    }

    /// Returns whether the waiting requests need another session: too few threads are free, or the
    /// first request has waited too long.
    fn needs_another(&self) -> bool {
        let waits_long = |first: &QueuedRequest| first.since.elapsed() >= MAX_LOAD_WAIT;
        self.queue.len() > self.free() || self.queue.first().is_some_and(waits_long)
    }

    /// Returns the slot for the next step of a conversation.
    fn between(&mut self, number: u64) -> Option<&mut Reservation> {
        let mut runs = self.seats.values_mut().filter_map(|seat| seat.run.as_mut());
        let run = runs.find(|run| run.live.contains(&number))?;
        run.between.as_mut()
    }
}

impl Owner {
    /// Holds the session for a conversation and runs its steps until it is over.
    pub(super) fn converse(&mut self, terms: &ReservationTerms) {
        while let Some(step) = self.next_step(terms) {
            let begins = step.begins.clone();
            if self.run(vec![step], begins).is_none() {
                return;
            }
        }
    }

    /// Waits for the next step. Returns `None` when the reservation has ended.
    fn next_step(&self, terms: &ReservationTerms) -> Option<QueuedRequest> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let until = Instant::now() + terms.idle;
        loop {
            let is_stopped = state.phase == Phase::Stopped;
            let is_needed = state.needs_another();
            let run = state.seats.get_mut(&self.seat)?.run.as_mut()?;
            let given_up = run.live.is_empty();
            let between = run.between.as_mut()?;
            let (rests, is_asked) = (between.rests, between.asked.is_some());
            let left = rests.unwrap_or(until);
            let left = left.saturating_duration_since(Instant::now());
            let lease = &self.held.as_ref()?.lease;
            if rests.is_some() && !is_asked && lease.end_use() {
                drop(state);
                lease.wake_others();
                state = shared.lock();
                continue;
            }
            let taken = rests.is_some() && lease.must_go() || is_asked && !lease.begin_use();
            let end = if is_stopped {
                Some(CallError::Stopped)
            } else if given_up {
                Some(CallError::Over("it was cancelled".to_owned()))
            } else if taken {
                Some(ended_error("its memory was needed while it rested"))
            } else if is_asked {
                None
            } else if rests.is_some() && is_needed {
                Some(ended_error("its session was needed while it rested"))
            } else if left.is_zero() {
                Some(rests.map_or_else(|| idle_error(terms.idle), |_| ended_error(REST_EXCEEDED)))
            } else {
                let left = if rests.is_some() {
                    left.min(MAX_LOAD_WAIT)
                } else {
                    left
                };
                state = wait(&shared, state, left).0;
                continue;
            };
            let Some(end) = end else {
                let step = between.asked.take();
                run.between = None;
                return step;
            };
            // A caller that finds the run gone also finds the reason.
            let _ = terms.ended.set(end.clone());
            if let Some(step) = between.asked.take() {
                step.finish(Err(end));
            }
            if let Some(seat) = state.seats.get_mut(&self.seat) {
                seat.run = None;
            }
            drop(state);
            shared.notify_change();
            return None;
        }
    }
}

/// Returns the start state of the first step.
fn first(begins: RunStart) -> RunStart {
    match begins {
        RunStart::Lanes(lanes) => RunStart::Lanes(Lanes {
            anew: true,
            ..lanes
        }),
        _ => RunStart::Anew,
    }
}

fn ended_error(why: &str) -> CallError {
    CallError::Over(format!("{why}; start a new one"))
}

fn idle_error(idle: Duration) -> CallError {
    CallError::Over(format!(
        "its next step did not arrive within {} s; start a new one",
        idle.as_secs_f64()
    ))
}
