//! Faults of pictures, sounds and outputs, as errors of calls.

use super::super::tensors::undecoded;
use super::super::{CallError, Refusal};
use pkgtool_media::MediaKind;
use pkgtool_media::worker::RecipeWorkError;

/// Converts an error of work on a picture or sound at `place`.
pub(in crate::service) fn failed(
    error: RecipeWorkError,
    kind: MediaKind,
    place: &str,
) -> CallError {
    match error {
        RecipeWorkError::Fault(reason) => Refusal::at(place, reason).into(),
        RecipeWorkError::Process(error) => undecoded(&error, kind.noun(), place),
    }
}

/// Converts the fault of outputs.
pub(in crate::service) fn misfit(reason: &str) -> CallError {
    CallError::Failed(format!("the outputs do not fit the recipe: {reason}"))
}

/// Interprets on a blocking thread.
pub(in crate::service) async fn interpreted<T: Send + 'static>(
    interpret: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, CallError> {
    let done = tokio::task::spawn_blocking(interpret).await;
    let done = done.map_err(|error| CallError::Failed(error.to_string()))?;
    done.map_err(|reason| misfit(&reason))
}
