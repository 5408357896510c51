//! Errors of the chat adapters that differ from those of the other routes.
//!
//! Invariant: an unknown model and a model without an engine are both "not found".

use axum::http::StatusCode;

use super::super::super::error::GatewayError;
use crate::service::CallError;

/// Returns the error of an unknown model.
pub(super) fn unknown_model(message: &str) -> GatewayError {
    let message = format!("{message}; GET models lists the available models");
    GatewayError::new(StatusCode::NOT_FOUND, "SERVICE_NOT_FOUND", message).with("place", "$.model")
}

/// Converts the error of a call. An inactive model is "not found"; other errors are the usual ones.
pub(super) fn call_error(error: CallError) -> GatewayError {
    let is_inactive = matches!(error, CallError::NoInstances(_) | CallError::Away(_));
    let mut error = GatewayError::from(error);
    if is_inactive {
        error.status = StatusCode::NOT_FOUND;
        error = error.with("place", "$.model");
    }
    error
}
