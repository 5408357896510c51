//! Time limits of resting sessions, and detection of sessions that were lost at rest.
//!
//! Invariant: tokens lost at rest are fed again; a failure caused by a request is that request's
//! own error.

use std::time::Duration;

use crate::service::CallError;
use pkgtool_text::decoder::StepError;

/// Maximum time that a session waits for the next step of a generation.
pub(super) const MAX_STEP_PAUSE: Duration = Duration::from_mins(1);

/// Maximum time that a conversation rests.
pub(super) const MAX_REST: Duration = Duration::from_mins(10);

/// Returns whether a step failed because its session was taken away, or crashed at rest.
pub(super) fn is_over(error: &StepError, has_rested: bool) -> bool {
    let cause = match error {
        StepError::Evicted => return true,
        StepError::Run { .. } => return false,
        StepError::Failed(cause) => cause,
    };
    match cause.downcast_ref() {
        Some(CallError::Over(_)) => true,
        Some(CallError::Crashed(_)) => has_rested,
        _ => false,
    }
}

/// Converts a call error to the error of a step.
pub(super) fn step_error(error: CallError) -> StepError {
    match error {
        CallError::Refused(_) => StepError::run(error, true),
        CallError::Failed(_) => StepError::run(error, false),
        other => StepError::failed(other),
    }
}
