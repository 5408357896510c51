//! How long sessions rest, and what becomes of them meanwhile.
//!
//! Invariant: what was lost at rest is fed again; what a request has done is its own error.

use std::time::Duration;

use crate::service::CallError;
use crate::text::decoder::StepError;

/// How long a session waits for the next step of a generation, at most.
pub(super) const BETWEEN_STEPS: Duration = Duration::from_mins(1);

/// How long a conversation rests, at most.
pub(super) const REST: Duration = Duration::from_mins(10);

/// Whether a step failed because its session had gone: it was taken away, or died while it rested.
pub(super) fn is_over(error: &StepError, has_rested: bool) -> bool {
    let cause = match error {
        StepError::Taken => return true,
        StepError::Run { .. } => return false,
        StepError::Failed(cause) => cause,
    };
    match cause.downcast_ref() {
        Some(CallError::Over(_)) => true,
        Some(CallError::Crashed(_)) => has_rested,
        _ => false,
    }
}

/// The error of a step in a session.
pub(super) fn step_error(error: CallError) -> StepError {
    match error {
        CallError::Refused(_) => StepError::run(error, true),
        CallError::Failed(_) => StepError::run(error, false),
        other => StepError::failed(other),
    }
}
