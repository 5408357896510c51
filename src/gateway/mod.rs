//! The gateway: HTTP in front of services and tasks, as `gateway.md`'s contract has it.
//!
//! Invariant: a handler extracts, makes one call, responds. Knows nothing of the command line.

mod auth;
mod body;
mod coding;
mod error;
mod extract;
mod form;
mod metrics;
mod observe;
mod openapi;
mod request_id;
mod routes;
mod server;
pub mod settings;
mod state;

pub use server::{Bound, ServeError, Tls};
pub use settings::Settings;
pub use state::{Gateway, Parts, Services};
