//! Runs of a session and their consequences: answers, a new choice of engine, the end of a crashed
//! session, and retries of requests.
//!
//! Invariant: a failure is the answer to a single request only; the other requests of a failed
//! batch run again alone.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::batch::{self, Batching};
use super::loaded::{call_error, for_log, has_died};
use super::owner::{OwnedSession, Owner};
use super::place::SessionPlace;
use super::request::{QueuedRequest, ReservationTerms};
use super::state::EndpointState;
use super::trial::{self, TrialResult};
use crate::service::CallError;
use pkgtool_engine::runtime::target::Candidate;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::{ByteSums, EngineError, Provider, RunStart};

/// State of a run after its end.
#[derive(Default)]
struct EndedRun {
    /// Requests that still wait for its answer.
    live: Vec<u64>,
    /// True if the server stopped its process.
    stopped: bool,
}

/// A failed run.
struct RunFault {
    error: EngineError,
    /// True if a trial failed too, which means that the model is at fault instead of the request.
    is_models_fault: bool,
}

impl RunFault {
    fn of_run(error: EngineError) -> Self {
        Self {
            error,
            is_models_fault: false,
        }
    }

    fn of_model(error: EngineError) -> Self {
        Self {
            error,
            is_models_fault: true,
        }
    }
}

/// Returns the error of a model that fails on every input.
fn inactive(error: CallError) -> CallError {
    let reason = match error {
        CallError::Failed(reason) => reason,
        // The last output of a process may contain anything.
        CallError::Crashed(_) => "its process crashed".to_owned(),
        other => return other,
    };
    CallError::NoInstances(format!(
        "the model failed on every input that was tried: {reason}"
    ))
}

impl EndpointState {
    /// Records that the candidate runs the model.
    fn accept(&mut self, candidate: Candidate, place: &SessionPlace) {
        self.choices.at(place).prove(candidate);
        self.refusal = None;
        self.is_doubtful = false;
    }
}

impl OwnedSession {
    /// Returns whether it runs on the target hardware of the model instead of portable code.
    pub(super) fn is_on_target(&self) -> bool {
        self.candidate.provider != Provider::Cpu
    }

    fn run(&mut self, inputs: &[Tensor], begins: RunStart) -> Result<Vec<Tensor>, EngineError> {
        let (start, before) = (Instant::now(), self.session.cpu_time());
        let outcome = self.session.run(inputs, begins);
        self.last = start.elapsed();
        // Wall-clock time if CPU time is unavailable, for example of a crashed process.
        let cpu = before.and_then(|before| self.session.cpu_time()?.checked_sub(before));
        self.cpu = cpu.unwrap_or(self.last);
        outcome
    }

    fn run_all(
        &mut self,
        requests: &[QueuedRequest],
        begins: RunStart,
    ) -> Result<Vec<Vec<Tensor>>, EngineError> {
        let inputs: Vec<&[Tensor]> = requests
            .iter()
            .filter_map(|request| request.inputs.as_deref())
            .collect();
        if let [inputs] = inputs.as_slice() {
            return self.run(inputs, begins).map(|outputs| vec![outputs]);
        }
        let failed = |reason: String| EngineError::Run {
            engine: self.candidate.engine.to_owned(),
            operator: None,
            reason,
        };
        let joined = batch::join(&inputs).map_err(|error| failed(error.to_string()))?;
        let rows: Vec<u64> = inputs
            .iter()
            .filter_map(|inputs| batch::rows(inputs))
            .collect();
        let outputs = self.run(&joined, begins)?;
        batch::split(outputs, &rows).ok_or_else(|| EngineError::Run {
            engine: self.candidate.engine.to_owned(),
            operator: None,
            reason: "the number of output rows differs from the number of input rows".to_owned(),
        })
    }
}

impl Owner {
    /// Runs requests as a batch and answers them. Returns the terms for keeping the session if this
    /// was the step of an ongoing conversation.
    pub(super) fn run(
        &mut self,
        requests: Vec<QueuedRequest>,
        begins: RunStart,
    ) -> Option<ReservationTerms> {
        let held = self.held.as_mut()?;
        if requests.iter().all(|request| request.inputs.is_none()) {
            self.present(requests);
            return None;
        }
        let meter = &self.shared.meter;
        for request in &requests {
            meter.waits.time(request.since.elapsed());
        }
        meter.batches.number(requests.len());
        held.cpu = Duration::ZERO;
        if let Some(others) = &self.shared.source.gives_way_to {
            others.wait();
        }
        let outcome = held.run_all(&requests, begins);
        let share = held.cpu / u32::try_from(requests.len()).unwrap_or(u32::MAX).max(1);
        for request in &requests {
            meter.cpu(request.caller, share);
        }
        match outcome {
            Ok(outputs) => {
                meter.runs.time(held.last);
                self.answer(requests, outputs)
            }
            Err(error) => {
                let fault = self.judge(requests.len(), error);
                self.fail(requests, fault);
                None
            }
        }
    }

    /// Answers requests that only ask for a session that has run the model.
    fn present(&mut self, requests: Vec<QueuedRequest>) {
        let is_proven = self.held.as_ref().is_some_and(|held| held.proven);
        let verdict = if is_proven {
            TrialResult::Unknown
        } else {
            self.try_model()
        };
        match verdict {
            TrialResult::Runs => {
                let outputs = vec![Vec::new(); requests.len()];
                self.answer(requests, outputs);
            }
            TrialResult::Fails(error) => self.fail(requests, RunFault::of_model(error)),
            // The session is loaded; without a request, nothing more can be known.
            TrialResult::Unknown => {
                self.end_run(|_, _| {});
                for request in requests {
                    request.finish(Ok(Vec::new()));
                }
            }
        }
    }

    /// Tries a model before its requests, because a request crashed its process before the model
    /// had ever run.
    pub(super) fn try_before_requests(&mut self) {
        let verdict = self.try_model();
        self.shared.lock().is_doubtful = false;
        match verdict {
            TrialResult::Runs => {
                self.answer(Vec::new(), Vec::new());
            }
            TrialResult::Fails(error) => self.fail(Vec::new(), RunFault::of_model(error)),
            TrialResult::Unknown => self.end_run(|_, _| {}),
        }
    }

    /// Runs the model on small inputs.
    fn try_model(&mut self) -> TrialResult {
        let shared = Arc::clone(&self.shared);
        let Some(held) = &mut self.held else {
            return TrialResult::Unknown;
        };
        let verdict = trial::of(&shared.model, |inputs| {
            held.run(inputs, RunStart::Anew).map(drop)
        });
        if let TrialResult::Fails(error) = &verdict {
            // The error contains nothing from a request.
            tracing::info!(
                service = shared.model.service,
                engine = held.candidate.engine,
                provider = held.candidate.provider.name(),
                %error,
                "the model failed in a trial"
            );
        }
        verdict
    }

    /// Determines whether the model is at fault for a failure. A model that has never run is tried
    /// with other inputs.
    fn judge(&mut self, requests: usize, error: EngineError) -> RunFault {
        let Some(held) = self.held.as_ref() else {
            return RunFault::of_run(error);
        };
        let (candidate, is_proven) = (held.candidate, held.proven);
        let mut state = self.shared.lock();
        let choice = state.choices.at(&held.place);
        let goes_on = choice.has_alternative(candidate, &error);
        if is_proven || requests > 1 || goes_on || matches!(error, EngineError::Input { .. }) {
            return RunFault::of_run(error);
        }
        if has_died(&error) {
            state.is_doubtful = true;
            return RunFault::of_run(error);
        }
        let is_known = state.refusal.is_some();
        drop(state);
        if is_known {
            return RunFault::of_model(error);
        }
        match self.try_model() {
            TrialResult::Runs => {
                self.accept();
                RunFault::of_run(error)
            }
            TrialResult::Fails(error) => RunFault::of_model(error),
            TrialResult::Unknown => RunFault::of_run(error),
        }
    }

    /// Records a successful trial: later failures are the fault of their requests.
    fn accept(&mut self) {
        let Some(held) = self.held.as_mut() else {
            return;
        };
        held.proven = true;
        self.shared.lock().accept(held.candidate, &held.place);
        self.proved();
    }

    fn answer(
        &mut self,
        requests: Vec<QueuedRequest>,
        outputs: Vec<Vec<Tensor>>,
    ) -> Option<ReservationTerms> {
        let held = self.held.as_mut()?;
        let terms = requests.iter().find_map(|request| request.terms.clone());
        held.runs += 1;
        let proved = !std::mem::replace(&mut held.proven, true);
        let (runs, candidate, place) = (held.runs, held.candidate, held.place.clone());
        let (stopped, is_awaited, is_kept) = self.end_run(|state, ended| {
            state.runs += 1;
            state.backoff.reset();
            if proved || !state.choices.at(&place).is_made() {
                state.accept(candidate, &place);
            }
            state.refusal = None;
            // Reserve the session before sending the answer, because the next step may arrive at
            // once.
            if terms.is_some() && !ended.stopped && !ended.live.is_empty() {
                state.keep(self.seat, ended.live);
                return (false, false, true);
            }
            // Mark the session as idle before sending the answer, because the next request may need
            // its memory.
            let held = self.held.as_ref().filter(|_| state.queue.is_empty());
            let is_awaited = held.is_some_and(|held| held.lease.end_use());
            (ended.stopped, is_awaited, false)
        });
        for (request, outputs) in requests.into_iter().zip(outputs) {
            request.finish(Ok(outputs));
        }
        if let Some(held) = self.held.as_ref().filter(|_| is_awaited) {
            held.lease.wake_others();
        }
        if stopped {
            // The run was stopped just after it had answered.
            self.release("it was stopped");
            return None;
        }
        if proved {
            self.proved();
        }
        // Memory grows mostly in the first runs.
        if runs.is_power_of_two() {
            self.measure();
        }
        terms.filter(|_| is_kept)
    }

    fn fail(&mut self, requests: Vec<QueuedRequest>, fault: RunFault) {
        let Some(held) = &self.held else { return };
        let RunFault {
            error,
            is_models_fault: is_models,
        } = fault;
        if let EngineError::Device { is_lost: true, .. } = error {
            return self.lost(requests, &error);
        }
        let (candidate, is_proven, is_new) = (held.candidate, held.proven, held.runs == 0);
        let place = held.place.clone();
        let died = has_died(&error);
        let reason = for_log(&error).to_owned();
        let count = requests.len();
        // Under one lock: a request is always visible, either in its run or in the queue.
        let stopped = self.end_run(|state, ended| {
            if ended.stopped {
                for request in requests {
                    request.finish(Err(CallError::Stopped));
                }
                return true;
            }
            state.crashes += u64::from(died);
            state.missing += u64::from(died);
            let mut answer = if count > 1 {
                Ok(())
            } else if is_proven || matches!(error, EngineError::Input { .. }) {
                // An invalid input is not the candidate's fault.
                Err(call_error(&error))
            } else {
                let answer = state.choices.at(&place).fail(candidate, error);
                answer.map_err(|error| if is_models { inactive(error) } else { error })
            };
            if let Err(error @ CallError::NoInstances(_)) = &answer {
                // The earlier error is more informative than the failure of this request.
                let known = state.refusal.take().map(|(_, known)| known);
                let error = known.unwrap_or_else(|| error.clone());
                let pause = state.pause(error.clone());
                tracing::warn!(
                    service = self.shared.model.service,
                    %error,
                    pause_ms = pause.as_millis(),
                    "the service is inactive"
                );
                answer = Err(error);
            }
            // A skipped candidate is not tried again, so its failure needs no backoff.
            let is_paused = matches!(answer, Err(CallError::NoInstances(_)));
            if died && is_new && !is_paused && (is_proven || answer.is_err()) {
                state.backoff.fail(Instant::now());
            }
            for mut request in requests.into_iter().rev() {
                match &answer {
                    Err(error) => request.finish(Err(error.clone())),
                    // The request runs again, alone or with the next candidate.
                    Ok(()) if ended.live.contains(&request.id) => {
                        request.alone |= count > 1;
                        request.since = Instant::now();
                        state.queue.put_back(request);
                    }
                    Ok(()) => {}
                }
            }
            self.shared.staff(state);
            false
        });
        if died && !stopped {
            self.shared.meter.deaths.fetch_add(1, Relaxed);
            tracing::warn!(
                service = self.shared.model.service,
                engine = candidate.engine,
                provider = candidate.provider.name(),
                reason,
                requests = count,
                "a session crashed"
            );
        }
        if died || stopped || !is_proven {
            self.release("its run failed");
        }
    }

    /// Handles the loss of the device during a run. Its requests run again once, where sessions can live then.
    fn lost(&mut self, requests: Vec<QueuedRequest>, error: &EngineError) {
        let Some(held) = &self.held else { return };
        tracing::warn!(
            service = self.shared.model.service,
            requests = requests.len(),
            %error,
            "a session lost its device"
        );
        if let SessionPlace::Device(connection) = &held.place {
            self.shared.source.devices.suspect(connection);
        }
        self.end_run(|state, ended| {
            for mut request in requests.into_iter().rev() {
                // The state of earlier steps is gone with the session.
                let is_again = request.was_lost || request.begins != RunStart::Anew;
                if is_again || ended.stopped {
                    request.finish(Err(CallError::Lost));
                } else if ended.live.contains(&request.id) {
                    request.was_lost = true;
                    state.queue.put_back(request);
                }
            }
            self.shared.staff(state);
        });
        self.release("its device was lost");
    }

    /// Tries to prove that the first dimension is a batch dimension.
    pub(super) fn prove(&mut self, like: &[Tensor]) {
        let Some(held) = &mut self.held else { return };
        let limit = self.shared.rows_limit.unwrap_or(1);
        // Random inputs may make a model run forever while requests wait.
        let time = held.last.saturating_mul(20) + Duration::from_secs(2);
        held.session.set_timeout(Some(time));
        let mut died = false;
        let proved = batch::prove(like, limit, |inputs| {
            let outcome = held.session.run(inputs, RunStart::Anew);
            died |= outcome.as_ref().is_err_and(has_died);
            outcome
        });
        held.session.set_timeout(None);
        let stopped = self.end_run(|state, ended| {
            state.batching = match &proved {
                Ok(()) => Batching::On,
                Err(_) => Batching::Off,
            };
            ended.stopped
        });
        if died || stopped {
            self.release("it crashed on random inputs");
        }
        if let Err(reason) = proved {
            tracing::info!(
                service = self.shared.model.service,
                reason,
                "batching is disabled for this service: its first dimension is not a batch dimension"
            );
        }
    }

    /// Ends the run of this seat and calls `follow` under the same lock.
    fn end_run<T>(&self, follow: impl FnOnce(&mut EndpointState, EndedRun) -> T) -> T {
        let mut state = self.shared.lock();
        let seat = state.seats.get_mut(&self.seat);
        let ended = seat.map_or_else(EndedRun::default, |seat| EndedRun {
            live: seat.run.take().unwrap_or_default().live,
            stopped: seat.stopped,
        });
        let followed = follow(&mut state, ended);
        drop(state);
        self.shared.notify_change();
        followed
    }

    /// Logs the engine and provider that run the model from now on.
    fn proved(&mut self) {
        let Some(held) = &mut self.held else { return };
        let candidate = held.candidate;
        held.session.set_timeout(None);
        let on_target = held.session.is_on(candidate.provider);
        let byte_sums = held.session.placement().byte_sums;
        tracing::debug!(
            service = self.shared.model.service,
            engine = candidate.engine,
            provider = candidate.provider.name(),
            fallback = candidate.fallback || !on_target,
            byte_sums = byte_sums.map(ByteSums::name),
            "this engine runs the model"
        );
        let sandbox = held.session.sandbox();
        let mut state = self.shared.lock();
        state.byte_sums = byte_sums;
        state.sandbox = sandbox;
    }

    fn measure(&mut self) {
        let Some(held) = &mut self.held else { return };
        let Some(bytes) = held.session.memory() else {
            return;
        };
        let mut state = self.shared.lock();
        state.measured = Some(state.measured.map_or(bytes, |known| known.max(bytes)));
        if let Some(seat) = state.seats.get_mut(&self.seat) {
            seat.bytes = bytes;
        }
        drop(state);
        held.lease.measured(bytes);
    }
}
