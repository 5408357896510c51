//! The messages and the service, generated from `proto/mlp-gate.proto`, and what every answer needs.

use std::collections::HashMap;

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

/// The additions to the protocol that this crate knows.
pub mod extension {
    /// The gate cancels requests.
    pub const CANCEL: &str = "cancel";
    /// The service tells how many requests it accepts.
    pub const CREDITS: &str = "credits";
}

/// Codes of errors.
pub mod code {
    /// The gate knows no instance with this token, or not yet.
    pub const TOKEN_NOT_FOUND: &str = "mlp.gate.instance_by_token_not_found";
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
