//! The gateway: HTTP in front of services and tasks, as `gateway.md`'s contract has it.
//!
//! Invariant: a handler extracts, makes one call, responds. Knows nothing of the command line.

mod auth;
mod body;
mod closing;
mod coding;
mod connections;
mod error;
mod extract;
mod form;
mod framing;
mod in_flight;
mod limit_met;
mod metrics;
mod observe;
mod openapi;
mod peer;
mod present;
mod readiness;
mod request_id;
mod room;
mod routes;
mod server;
pub mod settings;
mod state;
mod stopping;
mod stored;
mod takes;
mod tls;
mod unread;
mod visible;
mod wire;

pub use server::{Bound, ServeError};
pub use settings::Settings;
pub use state::{Gateway, Parts, Reload, Services};
pub use stopping::Deadline;
pub use tls::{Tls, TlsError};
