//! Access to packages on servers and hubs: inspecting them with listings and range requests, and
//! downloading them.
//!
//! A package is inspected through a [`Mirror`], a local directory with the names and sizes of the
//! real files, whose content is fetched block by block when it is read.
//!
//! Invariant: servers are not trusted. Received data is counted and limited before it is stored,
//! and sizes and names are checked. Redirects to private addresses are rejected unless the user
//! meant them.

mod address;
pub mod cache;
mod crawl;
mod error;
mod gate;
mod html;
mod hub;
mod listing;
mod mirror;
mod name;
pub mod pull;
mod ranged;
mod record;
mod settings;
mod settle;
mod store;
mod web;
mod weights;

pub use address::Address;
pub use error::RemoteError;
pub use mirror::Mirror;
pub use settings::{PullLimits, RemoteSettings};
pub use web::Traffic;
