//! The gateway: HTTP in front of services and tasks, as `gateway.md`'s contract has it.
//!
//! Invariant: a handler extracts, makes one call, responds. Knows nothing of the command line.

mod auth;
mod body;
mod coding;
mod connections;
mod error;
mod extract;
mod form;
mod limit_met;
mod metrics;
mod observe;
mod openapi;
mod readiness;
mod request_id;
mod routes;
mod server;
pub mod settings;
mod state;
mod stopping;
mod wire;

pub use server::{Bound, ServeError, Tls};
pub use settings::Settings;
pub use state::{Gateway, Parts, Services};
pub use stopping::Deadline;
