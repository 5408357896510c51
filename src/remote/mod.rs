//! Packages on servers and hubs: what they hold by listings and ranges of bytes, and fetching them.
//!
//! Invariant: a server is not believed. What it sends is counted and bounded before it is read, sizes
//! and names are checked, and an address that the user did not mean (a private one behind a redirect)
//! is not asked. A package is seen through a [`Mirror`]: a directory with the names and sizes of the
//! real one, whose files are fetched block by block where they are read.

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
pub use settings::{Limits, Settings};
pub use web::Traffic;
