//! What adapters say otherwise than the gateway does elsewhere.
//!
//! Invariant: a model that is not there, or that nothing here runs, is not found.

use axum::http::StatusCode;

use super::super::super::error::Error;
use crate::service::CallError;

/// There is no such model.
pub(super) fn no_model(message: &str) -> Error {
    let message = format!("{message}; GET models lists those that there are");
    Error::new(StatusCode::NOT_FOUND, "SERVICE_NOT_FOUND", message).with("place", "$.model")
}

/// What a failed call is to an adapter's client: as everywhere, but that what is inactive is not found.
pub(super) fn failed(error: CallError) -> Error {
    let is_inactive = matches!(error, CallError::NoInstances(_));
    let mut error = Error::from(error);
    if is_inactive {
        error.status = StatusCode::NOT_FOUND;
        error = error.with("place", "$.model");
    }
    error
}
