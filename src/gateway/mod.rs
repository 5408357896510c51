//! The gateway: HTTP in front of services and tasks, as `gateway.md`'s contract has it.
//!
//! Invariant: a handler extracts, makes one call, responds. Knows nothing of the command line.

mod auth;
mod error;
mod extract;
mod form;
mod metrics;
mod observe;
mod openapi;
mod peer;
mod present;
mod request_id;
mod routes;
mod server;
pub mod settings;
mod state;
mod takes;
mod tls;
mod visible;

pub use server::{Bound, ServeError};
pub use settings::Settings;
pub use state::{Gateway, Parts, Reload, Services};
pub use tls::{Tls, TlsError};
