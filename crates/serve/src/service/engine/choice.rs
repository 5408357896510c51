//! Chooses the engine and execution provider of an endpoint: the first candidate that has run the
//! model.
//!
//! Invariant: a candidate is skipped only for a failure that is its own. Once a candidate has run
//! the model, it is used for all later sessions until it fails to load.

use std::collections::BTreeMap;

use super::loaded::call_error;
use super::place::SessionPlace;
use crate::service::CallError;
use pkgtool_base::package::Backend;
use pkgtool_engine::EngineError;
use pkgtool_engine::runtime::target::{Candidate, StartError, candidates, require_runnable};

/// The choice of an endpoint.
#[derive(Debug)]
pub(super) struct EngineChoice {
    candidates: Vec<Candidate>,
    passed_over: Vec<(Candidate, EngineError)>,
    proven: Option<Candidate>,
}

impl EngineChoice {
    /// Creates an open choice.
    pub(super) fn new(format: &str, backend: Option<Backend>) -> Self {
        Self {
            candidates: candidates(format, backend),
            passed_over: Vec::new(),
            proven: None,
        }
    }

    /// Returns the candidate to load next.
    pub(super) fn next(&self) -> Option<Candidate> {
        let untried = |candidate: &&Candidate| {
            let mut passed_over = self.passed_over.iter();
            !passed_over.any(|(other, _)| other == *candidate)
        };
        self.proven
            .or_else(|| self.candidates.iter().find(untried).copied())
    }

    /// Returns whether another candidate is tried after this error.
    pub(super) fn has_alternative(&self, candidate: Candidate, error: &EngineError) -> bool {
        let is_left = |other: &&Candidate| {
            let mut passed_over = self.passed_over.iter();
            **other != candidate && !passed_over.any(|(passed, _)| passed == *other)
        };
        candidate.should_try_next(error) && self.candidates.iter().any(|it| is_left(&it))
    }

    /// Returns the candidate that has run the model.
    pub(super) fn proven_candidate(&self) -> Option<Candidate> {
        self.proven
    }

    /// Returns whether a candidate has run the model.
    pub(super) fn is_made(&self) -> bool {
        self.proven.is_some()
    }

    /// Records that the candidate has run the model.
    pub(super) fn prove(&mut self, candidate: Candidate) {
        self.proven = Some(candidate);
        self.passed_over.clear();
    }

    /// Records that the candidate failed to load, or failed in its first run. Returns the error if
    /// it was the last candidate; the choice then starts over.
    pub(super) fn fail(
        &mut self,
        candidate: Candidate,
        error: EngineError,
    ) -> Result<(), CallError> {
        if self.proven.take().is_some() {
            return Err(loading_error(&error));
        }
        if !candidate.should_try_next(&error) {
            self.passed_over.clear();
            return Err(loading_error(&error));
        }
        self.passed_over.push((candidate, error));
        if self.next().is_some() {
            return Ok(());
        }
        let tried = std::mem::take(&mut self.passed_over);
        Err(CallError::NoInstances(
            StartError::Failed(tried).to_string(),
        ))
    }
}

/// The choices of an endpoint, by the place of its sessions.
#[derive(Debug)]
pub(super) struct EngineChoices {
    format: &'static str,
    backend: Option<Backend>,
    by_place: BTreeMap<Option<usize>, EngineChoice>,
}

impl EngineChoices {
    pub(super) fn new(format: &'static str, backend: Option<Backend>) -> Self {
        Self {
            format,
            backend,
            by_place: BTreeMap::new(),
        }
    }

    /// Returns the choice for a place.
    pub(super) fn at(&mut self, place: &SessionPlace) -> &mut EngineChoice {
        let choice = self.by_place.entry(place.number());
        choice.or_insert_with(|| EngineChoice::new(self.format, self.backend))
    }

    /// Returns whether a candidate has run the model anywhere.
    pub(super) fn is_made(&self) -> bool {
        self.by_place.values().any(EngineChoice::is_made)
    }

    /// Returns a candidate that has run the model.
    pub(super) fn proven_candidate(&self) -> Option<Candidate> {
        let mut choices = self.by_place.values();
        choices.find_map(EngineChoice::proven_candidate)
    }
}

/// Returns the error if no engine on this machine runs this format.
pub(super) fn format_error(format: &str) -> Option<CallError> {
    let refusal = require_runnable(format).err()?;
    Some(CallError::NoInstances(refusal.to_string()))
}

/// Converts an error of loading: a model that cannot be loaded has no instances, while one that
/// fails on an input has failed.
fn loading_error(error: &EngineError) -> CallError {
    match error {
        EngineError::Load { .. } | EngineError::Corrupt { .. } => {
            CallError::NoInstances(error.to_string())
        }
        other => call_error(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pkgtool_engine::Provider;

    fn unsupported() -> EngineError {
        EngineError::Unsupported {
            engine: "ort".to_owned(),
            operators: vec!["ai.x.Y".to_owned()],
            reason: "it has no code for it".to_owned(),
        }
    }

    fn run() -> EngineError {
        EngineError::Run {
            engine: "ort".to_owned(),
            operator: None,
            reason: "an index is out of range".to_owned(),
        }
    }

    #[test]
    fn a_provider_is_passed_over_and_a_portable_engine_is_not() {
        let mut choice = EngineChoice::new("onnx", Some(Backend::Qnn));
        let first = choice.next().expect("there are some");
        assert_eq!(first.provider, Provider::Qnn);
        choice.fail(first, run()).expect("there are others");
        let second = choice.next().expect("there are others");
        assert_eq!((second.engine, second.provider), ("ort", Provider::Cpu));
        let error = choice.fail(second, run()).expect_err("the model's fault");
        assert!(matches!(error, CallError::Failed(_)), "{error}");
        assert_eq!(choice.next(), Some(first), "the next request begins anew");
    }

    #[test]
    fn a_broken_model_is_given_to_no_other_engine() {
        let mut choice = EngineChoice::new("executorch", Some(Backend::Xnnpack));
        let first = choice.next().expect("there are some");
        let broken = EngineError::Corrupt {
            engine: "executorch".to_owned(),
            reason: "the program is invalid".to_owned(),
        };
        let error = choice.fail(first, broken).expect_err("the model's fault");
        assert!(matches!(error, CallError::NoInstances(_)), "{error}");
    }

    #[test]
    fn without_an_engine_there_is_no_instance() {
        let mut choice = EngineChoice::new("onnx", None);
        let ort = choice.next().expect("there are some");
        choice.fail(ort, unsupported()).expect("tract is left");
        let tract = choice.next().expect("tract is left");
        let error = choice.fail(tract, unsupported()).expect_err("none is left");
        assert!(
            matches!(&error, CallError::NoInstances(text) if text.contains("tract (cpu)")),
            "{error}"
        );
    }

    #[test]
    fn what_ran_is_used_again() {
        let mut choice = EngineChoice::new("onnx", None);
        let ort = choice.next().expect("there are some");
        choice.fail(ort, unsupported()).expect("tract is left");
        let tract = choice.next().expect("tract is left");
        choice.prove(tract);
        assert!(choice.is_made());
        assert_eq!(choice.next(), Some(tract));
        choice.fail(tract, run()).expect_err("it was the choice");
        assert!(!choice.is_made());
    }
}
