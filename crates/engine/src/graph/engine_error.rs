//! Failures of a graph as errors of the engine.

use std::collections::BTreeSet;

use super::guard::LibraryFailure;
use super::watch;
use crate::EngineError;
use crate::refusal::reports_unsupported;

/// The engine's name.
pub(crate) const NAME: &str = "tract";

pub(crate) fn unsupported(operators: BTreeSet<String>, reason: &str) -> EngineError {
    EngineError::Unsupported {
        engine: NAME.to_owned(),
        operators: operators.into_iter().collect(),
        reason: reason.to_owned(),
    }
}

/// Converts a failure to an error about unsupported operators, if it is one.
pub(crate) fn refusal(failure: &LibraryFailure) -> Option<EngineError> {
    let operator = failure.operator.iter().cloned();
    let is_beyond =
        reports_unsupported(&failure.reason) || failure.reason.contains(watch::WRONG_RESULT);
    is_beyond.then(|| unsupported(operator.collect(), &failure.reason))
}

pub(crate) fn failed(failure: &LibraryFailure) -> EngineError {
    if let Some(refused) = refusal(failure) {
        return refused;
    }
    EngineError::Load {
        engine: NAME.to_owned(),
        reason: failure.text(),
    }
}

pub(crate) fn run_failed(failure: &LibraryFailure) -> EngineError {
    if failure.input {
        return EngineError::Input {
            engine: NAME.to_owned(),
            operator: failure.operator.clone(),
            reason: failure.reason.clone(),
        };
    }
    if let Some(refused) = refusal(failure) {
        return refused;
    }
    EngineError::Run {
        engine: NAME.to_owned(),
        operator: failure.operator.clone(),
        reason: failure.reason.clone(),
    }
}
