//! Maps the error of a failed call to the user-visible failure: HTTP status, error code and
//! message.

use super::{StoredAnswer, TaskFailure};
use crate::service::CallError;

pub use crate::service::SERVICE_UNAVAILABLE;

/// Error code of an invalid request.
pub const BAD_REQUEST: &str = "BAD_REQUEST";

/// Replaces the details of an internal error in messages to users.
const IN_THE_LOG: &str = "the server's log has the details";

impl TaskFailure {
    /// Creates a failure with a message for the user.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
            body: None,
            media_type: None,
            worker: None,
        }
    }

    /// Returns the failure of a task whose process crashed, or whose worker left, too often.
    pub fn crashed() -> Self {
        let message =
            "the process or the worker that ran the task is gone; the task is not retried";
        Self::new(503, SERVICE_UNAVAILABLE, message)
    }

    /// Returns the failure of a task whose request body cannot be read back.
    pub fn body_lost() -> Self {
        let message = "the request body could not be read back; send the request again";
        Self::new(404, "ASYNC_REQUEST_BODY_WAS_LOST", message)
    }

    /// Returns the failure of a request to a missing service.
    pub fn no_service(service: &str) -> Self {
        let message = format!("unknown service `{service}`");
        Self::new(400, "SERVICE_NOT_FOUND", message)
    }

    /// Converts a call error. Details of internal errors appear only in the log.
    pub fn of(error: CallError) -> Self {
        let message = error.to_string();
        match error {
            CallError::Refused(refusal) => {
                Self::new(400, refusal.code.unwrap_or(BAD_REQUEST), message)
            }
            CallError::NoInstances(_) | CallError::Away(_) => {
                Self::new(400, "NO_ACTIVE_INSTANCES", message)
            }
            CallError::QueueFull { .. } => Self::new(429, "SERVICE_QUEUE_IS_FULL", message),
            CallError::OutOfMemory(_) => Self::new(429, "TOO_MANY_BODY_BYTES", message),
            CallError::Timeout { .. } => Self::new(504, "PREDICT_TIMEOUT", message),
            CallError::Crashed(_) => Self::new(
                503,
                SERVICE_UNAVAILABLE,
                format!("the service's process crashed; {IN_THE_LOG}"),
            ),
            CallError::Over(_) => Self::new(409, "CONVERSATION_IS_OVER", message),
            CallError::Stopped | CallError::Lost | CallError::Down { .. } => {
                Self::new(503, SERVICE_UNAVAILABLE, message)
            }
            CallError::Unreachable(_) => Self::new(
                502,
                SERVICE_UNAVAILABLE,
                format!("the upstream service did not answer; {IN_THE_LOG}"),
            ),
            CallError::Failed(_) => Self::new(
                500,
                "mlp-action.common.service-error",
                format!("the model failed on this input; {IN_THE_LOG}"),
            ),
            CallError::Instance {
                status,
                code,
                worker,
                ..
            } => Self {
                worker: Some(worker),
                ..Self::new(status, &code, message)
            },
            CallError::Upstream {
                status,
                content_type,
                body,
                ..
            } => Self {
                body: Some(body.to_vec()),
                media_type: StoredAnswer::media_type(&content_type),
                ..Self::new(client_status(status), "UPSTREAM_ERROR", message)
            },
        }
    }
}

/// Returns the status that is passed on from an upstream. Redirects and other non-error statuses
/// become 502.
fn client_status(status: u16) -> u16 {
    if (400..600).contains(&status) {
        status
    } else {
        502
    }
}
