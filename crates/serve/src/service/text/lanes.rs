//! Runs several conversations in lanes of one session. Conversations that feed a single token share
//! a run.
//!
//! A scheduler thread is not needed. Among the threads that wait for a step, one runs it for all of
//! them. It starts as soon as every active conversation waits too, or after a short time.
//! Invariant: every waiter is answered, however a run ends. A lane belongs to one conversation and
//! one session; after a change of session its tokens are fed again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::rest::{MAX_REST, MAX_STEP_PAUSE, is_over, step_error};
use crate::account::AccountId;
use crate::service::engine::{Endpoint, EndpointConversation};
use pkgtool_engine::{Lanes, RunStart};
use pkgtool_text::decoder::{DecoderModel, LaneRow, StepError, StepResult, StepTokens, Steps};

/// Minimum and maximum time that a run waits for others to join. Within them it is half the
/// duration of the last run.
const JOIN_WAIT_RANGE: [Duration; 2] = [Duration::from_micros(500), Duration::from_millis(20)];

/// Number of failed batched runs after which batching is disabled.
const MAX_BATCH_FAILURES: u32 = 3;

/// A session and its waiting steps.
#[derive(Debug)]
pub(super) struct SharedSession {
    endpoint: Arc<Endpoint>,
    /// Maximum number of rows in a run.
    max_rows: usize,
    state: Mutex<LanesState>,
}

#[derive(Debug, Default)]
struct LanesState {
    /// Holds the session; `None` during a run.
    conversation: Option<EndpointConversation>,
    is_running: bool,
    /// Number of the current session, incremented when it is replaced.
    epoch: u64,
    /// Number of lanes created so far; the source of lane numbers.
    lanes: u32,
    /// Ended lanes that the session still holds.
    gone: Vec<u32>,
    /// Number of active conversations.
    active: usize,
    /// Number of steps so far; the source of step numbers.
    steps: u64,
    waiting: VecDeque<WaitingStep>,
    /// Results by step, with the epoch of the session that produced them.
    answers: BTreeMap<u64, (StepResult, u64)>,
    sharing: Sharing,
    /// Duration of the last run.
    last: Duration,
    /// True if the session has rested since the last run.
    has_rested: bool,
}

/// State of batching.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Sharing {
    #[default]
    Untried,
    /// Batching is verified; holds the number of failed batched runs.
    Proved(u32),
    Off,
}

/// A waiting step.
#[derive(Debug)]
struct WaitingStep {
    number: u64,
    lane: u32,
    /// Epoch of the session that holds the lane's tokens.
    epoch: u64,
    held: usize,
    tokens: Vec<u32>,
    since: Instant,
    /// The waiting thread.
    thread: Thread,
}

/// Runs the steps of one lane.
#[derive(Debug)]
pub(super) struct LaneSteps {
    session: Arc<SharedSession>,
    lane: u32,
    /// Epoch of the session that holds the lane, once one does.
    epoch: Option<u64>,
    caller: AccountId,
    runtime: Handle,
}

/// Marks a conversation as active, so that runs wait for it briefly. Dropping it ends that.
#[derive(Debug)]
pub(super) struct ActiveConversation(Arc<SharedSession>);

/// A run of steps. If it is dropped without a result, the steps are answered with an error.
struct LaneRun<'s> {
    session: &'s SharedSession,
    steps: Vec<WaitingStep>,
    is_over: bool,
}

impl SharedSession {
    /// Creates the session of an endpoint with runs of at most `most` rows. Nothing is loaded yet.
    pub(super) fn new(endpoint: &Arc<Endpoint>, most: usize) -> Arc<Self> {
        Arc::new(Self {
            endpoint: Arc::clone(endpoint),
            max_rows: most.max(1),
            state: Mutex::default(),
        })
    }

    /// Returns the number of active conversations.
    pub(super) fn active(&self) -> usize {
        self.lock().active
    }

    /// Creates a lane for a conversation.
    pub(super) fn lane(self: &Arc<Self>, caller: AccountId, runtime: Handle) -> LaneSteps {
        let mut state = self.lock();
        LaneSteps {
            session: Arc::clone(self),
            lane: state.number(),
            epoch: None,
            caller,
            runtime,
        }
    }

    fn lock(&self) -> MutexGuard<'_, LanesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the result of a step. If nobody else runs the waiting steps, this thread does.
    fn answer(
        &self,
        number: u64,
        model: &DecoderModel,
        (caller, runtime): (AccountId, &Handle),
    ) -> (StepResult, u64) {
        let mut state = self.lock();
        loop {
            if let Some(answer) = state.answers.remove(&number) {
                return answer;
            }
            match state.left(self.max_rows) {
                Some(left) if left.is_zero() => {
                    self.lead(state, model, (caller, runtime));
                }
                // The first thread waits for the others to join; the others wait for it to run.
                Some(left) if state.is_first(number) => {
                    drop(state);
                    thread::park_timeout(left);
                }
                _ => {
                    drop(state);
                    thread::park();
                }
            }
            state = self.lock();
        }
    }

    /// Runs the waiting steps.
    fn lead(
        &self,
        mut state: MutexGuard<'_, LanesState>,
        model: &DecoderModel,
        (caller, runtime): (AccountId, &Handle),
    ) {
        let steps = state.take(self.max_rows);
        let gone = std::mem::take(&mut state.gone);
        let conversation = state.conversation.take();
        let tries = steps.len() > 1 && state.sharing == Sharing::Untried;
        let trial = tries.then(|| [state.number(), state.number()]);
        state.is_running = true;
        drop(state);
        let running = LaneRun {
            session: self,
            steps,
            is_over: false,
        };
        let lease = || self.endpoint.lease(caller, MAX_STEP_PAUSE);
        let conversation = conversation.unwrap_or_else(lease);
        running.run(model, runtime, conversation, gone, trial);
    }

    fn leave(&self) {
        let mut state = self.lock();
        state.active -= 1;
        state.rest();
        // The next run may have been waiting for this conversation.
        state.wake_first();
    }
}

impl LanesState {
    fn number(&mut self) -> u32 {
        self.lanes = self.lanes.wrapping_add(1);
        self.lanes
    }

    /// Returns the time that the next run still waits for others; `None` if nothing can run now.
    fn left(&self, most: usize) -> Option<Duration> {
        let first = self.waiting.front().filter(|_| !self.is_running)?;
        let is_full = self.waiting.len() >= self.active.min(most);
        if is_full || !self.shares(first) {
            return Some(Duration::ZERO);
        }
        let [least, longest] = JOIN_WAIT_RANGE;
        let patience = (self.last / 2).clamp(least, longest);
        Some(patience.saturating_sub(first.since.elapsed()))
    }

    fn is_first(&self, number: u64) -> bool {
        let first = self.waiting.front();
        first.is_some_and(|first| first.number == number)
    }

    fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.thread.unpark();
        }
    }

    fn shares(&self, step: &WaitingStep) -> bool {
        step.tokens.len() == 1 && self.sharing != Sharing::Off
    }

    /// Takes the steps of the next run: the first one, and those that may share its run.
    fn take(&mut self, most: usize) -> Vec<WaitingStep> {
        let Some(first) = self.waiting.pop_front() else {
            return Vec::new();
        };
        let mut steps = vec![first];
        if self.shares(&steps[0]) {
            let (mut with, without): (Vec<_>, Vec<_>) = self
                .waiting
                .drain(..)
                .partition(|step| step.tokens.len() == 1);
            let rest = with.split_off(with.len().min(most - 1));
            steps.extend(with);
            self.waiting.extend(rest.into_iter().chain(without));
            self.waiting
                .make_contiguous()
                .sort_by_key(|step| step.number);
        }
        // A session can reuse tensors that it assembled for the same rows in the same order.
        steps.sort_by_key(|step| step.lane);
        steps
    }

    /// Lets the session rest when no conversation is active, so that others may take its memory.
    fn rest(&mut self) {
        if self.active == 0
            && let Some(conversation) = &self.conversation
        {
            conversation.rest(MAX_REST);
            self.has_rested = true;
        }
    }
}

impl LaneRun<'_> {
    fn run(
        mut self,
        model: &DecoderModel,
        runtime: &Handle,
        mut conversation: EndpointConversation,
        gone: Vec<u32>,
        trial: Option<[u32; 2]>,
    ) {
        self.answer_lost();
        if self.steps.is_empty() {
            return self.end(Some(conversation), gone, |_| Err(StepError::Evicted));
        }
        let mut run = |begins, inputs| {
            let step = conversation.step(begins, inputs, None);
            runtime.block_on(step).map_err(step_error)
        };
        let mut lanes = Lanes {
            gone,
            ..Lanes::default()
        };
        if let Some(trial) = trial {
            let tried = model.try_rows(trial, &mut run);
            lanes.gone.extend(trial);
            if !self.proved(&tried) {
                // The steps are fed again alone, in the same session if it still exists.
                let conversation = Some(conversation).filter(|_| tried.is_ok());
                return self.end(conversation, lanes.gone, |_| Err(StepError::Evicted));
            }
        }
        let started = Instant::now();
        let rows: Vec<LaneRow<'_>> = self.steps.iter().map(WaitingStep::row).collect();
        match model.run_rows(&rows, lanes, &mut run) {
            Ok(outputs) => {
                let mut state = self.session.lock();
                state.last = started.elapsed();
                state.has_rested = false;
                drop(state);
                let mut outputs = outputs.into_iter();
                self.end(Some(conversation), Vec::new(), |_| {
                    outputs.next().ok_or(StepError::Evicted)
                });
            }
            Err(error) => self.fail(error),
        }
    }

    /// Answers steps whose tokens an earlier session held, so that they are fed again.
    fn answer_lost(&mut self) {
        let epoch = self.session.lock().epoch;
        let (steps, lost) = std::mem::take(&mut self.steps)
            .into_iter()
            .partition(|step| step.held == 0 || step.epoch == epoch);
        self.steps = lost;
        self.finish(|_| Err(StepError::Evicted));
        self.steps = steps;
    }

    /// Records the result of the batching trial.
    fn proved(&self, tried: &Result<bool, StepError>) -> bool {
        let sharing = match tried {
            Ok(true) => Sharing::Proved(0),
            Ok(false) | Err(_) => Sharing::Off,
        };
        self.session.lock().sharing = sharing;
        if sharing == Sharing::Off {
            tracing::info!(
                method = self.session.endpoint.signature().method,
                "batching is disabled for this decoder: batched rows differ from single ones"
            );
        }
        sharing != Sharing::Off
    }

    /// Handles a failed run, which has lost the session.
    fn fail(self, error: StepError) {
        let has_rested = std::mem::take(&mut self.session.lock().has_rested);
        let is_over = is_over(&error, has_rested);
        let is_shared = self.steps.len() > 1;
        if is_shared && !is_over {
            let mut state = self.session.lock();
            state.sharing = match state.sharing {
                Sharing::Proved(failed) if failed + 1 < MAX_BATCH_FAILURES => {
                    Sharing::Proved(failed + 1)
                }
                _ => Sharing::Off,
            };
        }
        let mut error = Some(error).filter(|_| !is_shared && !is_over);
        // Each step runs again alone, so that it gets its own error.
        self.end(None, Vec::new(), |_| {
            Err(error.take().unwrap_or(StepError::Evicted))
        });
    }

    /// Ends the run: answers its steps and returns the session, if it still exists.
    fn end(
        mut self,
        conversation: Option<EndpointConversation>,
        gone: Vec<u32>,
        answer: impl FnMut(&WaitingStep) -> StepResult,
    ) {
        self.finish(answer);
        self.close(conversation, gone);
    }

    fn finish(&mut self, mut answer: impl FnMut(&WaitingStep) -> StepResult) {
        let mut state = self.session.lock();
        let epoch = state.epoch;
        for step in self.steps.drain(..) {
            let answer = answer(&step);
            state.answers.insert(step.number, (answer, epoch));
            step.thread.unpark();
        }
    }

    fn close(&mut self, conversation: Option<EndpointConversation>, gone: Vec<u32>) {
        self.is_over = true;
        let mut state = self.session.lock();
        state.is_running = false;
        if conversation.is_none() {
            state.epoch += 1;
            state.gone.clear();
        }
        state.gone.extend(gone);
        state.conversation = conversation;
        state.rest();
        state.wake_first();
    }
}

impl Drop for LaneRun<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.finish(|_| Err(StepError::Evicted));
            self.close(None, Vec::new());
        }
    }
}

impl WaitingStep {
    fn row(&self) -> LaneRow<'_> {
        LaneRow {
            lane: self.lane,
            fed: StepTokens::new(self.held, &self.tokens),
        }
    }
}

impl LaneSteps {
    /// Marks its conversation as active.
    pub(super) fn on_its_way(&self) -> ActiveConversation {
        self.session.lock().active += 1;
        ActiveConversation(Arc::clone(&self.session))
    }
}

impl Steps for LaneSteps {
    fn step(&mut self, model: &DecoderModel, begins: RunStart, fed: StepTokens<'_>) -> StepResult {
        let mut state = self.session.lock();
        if begins != RunStart::Anew && self.epoch != Some(state.epoch) {
            return Err(StepError::Evicted);
        }
        state.steps += 1;
        let number = state.steps;
        let epoch = state.epoch;
        state.waiting.push_back(WaitingStep {
            number,
            lane: self.lane,
            epoch,
            held: fed.held,
            tokens: fed.tokens.to_vec(),
            since: Instant::now(),
            thread: thread::current(),
        });
        drop(state);
        let by = (self.caller, &self.runtime);
        let (answer, epoch) = self.session.answer(number, model, by);
        self.epoch = answer.is_ok().then_some(epoch);
        answer
    }
}

impl Drop for LaneSteps {
    fn drop(&mut self) {
        self.session.lock().gone.push(self.lane);
    }
}

impl Drop for ActiveConversation {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(active: usize, steps: &[(u32, usize)]) -> LanesState {
        let waiting = steps
            .iter()
            .zip(1..)
            .map(|((lane, tokens), number)| WaitingStep {
                number,
                lane: *lane,
                epoch: 0,
                held: 4,
                tokens: vec![1; *tokens],
                since: Instant::now(),
                thread: thread::current(),
            });
        LanesState {
            active,
            waiting: waiting.collect(),
            ..LanesState::default()
        }
    }

    fn lanes(steps: &[WaitingStep]) -> Vec<u32> {
        steps.iter().map(|step| step.lane).collect()
    }

    #[test]
    fn single_tokens_share_a_run_and_prompts_do_not() {
        let mut state = state(5, &[(9, 1), (2, 7), (4, 1), (1, 1), (3, 1)]);
        assert_eq!(lanes(&state.take(3)), [1, 4, 9]);
        assert_eq!(
            lanes(&state.take(3)),
            [2],
            "the prompt came before the rest"
        );
        assert_eq!(lanes(&state.take(3)), [3]);
        assert!(state.take(3).is_empty());
    }

    #[test]
    fn rows_that_give_something_else_run_alone() {
        let mut state = state(2, &[(1, 1), (2, 1)]);
        state.sharing = Sharing::Off;
        assert_eq!(state.left(8), Some(Duration::ZERO));
        assert_eq!(lanes(&state.take(8)), [1]);
        assert_eq!(lanes(&state.take(8)), [2]);
    }

    #[test]
    fn a_run_waits_for_who_is_on_the_way_and_not_for_long() {
        let waits = |active, steps| {
            let left = state(active, steps).left(2);
            left.expect("something could run") > Duration::ZERO
        };
        assert!(waits(3, &[(1, 1)]));
        assert!(!waits(1, &[(1, 1)]), "nobody else is on the way");
        assert!(!waits(3, &[(1, 1), (2, 1)]), "a run has no more rows");
        assert!(!waits(3, &[(1, 5)]), "a part of a prompt runs alone");
        let mut late = state(3, &[(1, 1)]);
        late.waiting[0].since -= JOIN_WAIT_RANGE[0];
        assert_eq!(late.left(2), Some(Duration::ZERO));
        late.is_running = true;
        assert_eq!(late.left(2), None);
        assert_eq!(state(3, &[]).left(2), None);
    }
}
