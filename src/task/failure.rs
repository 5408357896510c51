//! From what went wrong with a call to what its user is told: status, code, words.

use super::{Answered, Failure};
use crate::service::CallError;

/// Code of a service that cannot be reached, or whose process died.
pub const SERVICE_UNAVAILABLE: &str = "mlp-action.common.service-unavailable";

/// Code of a request that is wrong.
pub const BAD_REQUEST: &str = "BAD_REQUEST";

/// What is said instead of the details of a failure inside the server.
const IN_THE_LOG: &str = "the server's log has the details";

impl Failure {
    /// A failure with a message for the user.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
            body: None,
            media_type: None,
        }
    }

    /// What becomes of a task whose process died too often.
    pub fn crashed() -> Self {
        let message = "the process that ran the task died; it will not be tried again";
        Self::new(503, SERVICE_UNAVAILABLE, message)
    }

    /// A task whose request body can't be read back.
    pub fn body_lost() -> Self {
        let message = "the body of the request could not be read back; send the request again";
        Self::new(404, "ASYNC_REQUEST_BODY_WAS_LOST", message)
    }

    /// A request to a service that does not exist, or no longer.
    pub fn no_service(service: &str) -> Self {
        let message = format!("there is no service `{service}`");
        Self::new(400, "SERVICE_NOT_FOUND", message)
    }

    /// What a failed call is to its user. Details of what is the server's fault stay in the log.
    pub fn of(error: CallError) -> Self {
        let message = error.to_string();
        match error {
            CallError::Refused(refusal) => {
                Self::new(400, refusal.code.unwrap_or(BAD_REQUEST), message)
            }
            CallError::NoInstances(_) => Self::new(400, "NO_ACTIVE_INSTANCES", message),
            CallError::QueueFull { .. } => Self::new(429, "SERVICE_QUEUE_IS_FULL", message),
            CallError::Timeout { .. } => Self::new(504, "PREDICT_TIMEOUT", message),
            CallError::Crashed(_) => Self::new(
                503,
                SERVICE_UNAVAILABLE,
                format!("the service's process died; {IN_THE_LOG}"),
            ),
            CallError::Over(_) => Self::new(409, "CONVERSATION_IS_OVER", message),
            CallError::Stopped | CallError::Down { .. } => {
                Self::new(503, SERVICE_UNAVAILABLE, message)
            }
            CallError::Unreachable(_) => Self::new(
                502,
                SERVICE_UNAVAILABLE,
                format!("the upstream did not answer; {IN_THE_LOG}"),
            ),
            CallError::Failed(_) => Self::new(
                500,
                "mlp-action.common.service-error",
                format!("the model failed on this input; {IN_THE_LOG}"),
            ),
            CallError::Upstream {
                status,
                content_type,
                body,
            } => Self {
                body: Some(body.to_vec()),
                media_type: Answered::media_type(&content_type),
                ..Self::new(passed_on(status), "UPSTREAM_ERROR", message)
            },
        }
    }
}

/// An upstream's redirects and other answers that are no errors to us are its misbehaviour.
fn passed_on(status: u16) -> u16 {
    if (400..600).contains(&status) {
        status
    } else {
        502
    }
}
