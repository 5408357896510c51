//! The messages and the service, generated from `proto/mlp-gate.proto`, and what every answer needs.

use std::collections::HashMap;
use std::time::Duration;

pub use generated::*;

#[allow(missing_docs, non_camel_case_types, unreachable_pub, clippy::large_enum_variant, clippy::pedantic, reason = "generated code")]
#[rustfmt::skip]
mod generated {
    include!("../proto/generated.rs");
}

/// Maximum size of a message in either direction, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 100 << 20;

/// The status of an end that accepts requests, in heartbeats.
pub const OK: &str = "Ok";

/// Number of intervals between heartbeats without a message, and the time after them, until a peer counts as lost.
const SILENT_INTERVALS: u32 = 3;
const SILENT_REST: Duration = Duration::from_secs(1);

/// Returns the time without a message after which a peer counts as lost.
pub(crate) fn longest_silence(interval: Duration) -> Duration {
    interval * SILENT_INTERVALS + SILENT_REST
}

/// The additions to the protocol that this crate knows.
pub mod extension {
    /// The gate cancels requests.
    pub const CANCEL: &str = "cancel";
    /// The service reports how many requests it accepts.
    pub const CREDITS: &str = "credits";
    /// The gate assigns packages.
    pub const PACKAGES: &str = "packages";
    /// A service that trains another one answers for it, too.
    pub const TRAINING: &str = "training";
}

/// Codes of errors.
pub mod code {
    /// The gate knows no instance with this token, or not yet.
    pub const TOKEN_NOT_FOUND: &str = "mlp.gate.instance_by_token_not_found";
    /// The token was revoked, or has expired.
    pub const TOKEN_REVOKED: &str = "mlp.gate.instance_token_revoked";
    /// Another instance is attached in its place, or too many are.
    pub const TOO_MANY_INSTANCES: &str = "mlp.gate.too_many_instances";
    /// The gateway itself provides the service.
    pub const SERVICE_PROVIDED: &str = "mlp.gate.service_is_provided";
    /// The first message of an instance does not announce it.
    pub const NOT_ANNOUNCED: &str = "mlp.gate.start_serving_expected";
    /// The instance has as many requests in flight as it accepts.
    pub const TOO_MANY_REQUESTS: &str = "mlp.service.too_many_requests";
    /// A request has the number of another one that is in flight.
    pub const REPEATED_REQUEST: &str = "mlp.service.repeated_request_id";
    /// The instance failed at a request.
    pub const FAILED: &str = "mlp.service.failed";
    /// The instance does not answer requests of this kind.
    pub const UNSUPPORTED: &str = "mlp.service.unsupported_request";
}

/// Returns an error without arguments.
#[must_use]
pub fn error(code: &str, status: SimpleStatusProto, message: String) -> ApiErrorProto {
    ApiErrorProto {
        code: code.to_owned(),
        message,
        status: status.into(),
        args: HashMap::new(),
    }
}
