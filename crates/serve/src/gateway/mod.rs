//! The HTTP gateway: serves the services, tasks, registry, training and chat adapters over HTTP.
//!
//! The contract of the API is in `gateway.md`. The module knows nothing of the command line:
//! `serve` hands it settings and parts.
//!
//! Invariant: a handler extracts its inputs, makes one call, and responds.

mod auth;
mod batches;
mod body;
mod closing;
mod coding;
mod connections;
mod cookie;
mod error;
mod extract;
mod file_form;
mod form;
mod framing;
mod gate;
mod in_flight;
mod limit_met;
mod metrics;
mod observe;
mod openapi;
mod peer;
mod present;
mod readiness;
mod recorder;
mod request_id;
mod room;
mod routes;
mod sampler;
mod server;
pub mod settings;
mod state;
mod stopping;
mod store_error;
mod stored;
mod takes;
mod tls;
mod unread;
mod visible;
mod wire;

pub use batches::BatchRunner;
pub use gate::BoundGate;
pub use server::{BoundListener, ServeError};
pub use settings::GatewaySettings;
pub use state::{Gateway, GatewayParts, Services, SettingsReload};
pub use stopping::Deadline;
pub use tls::{ServerCertificate, TlsError};
