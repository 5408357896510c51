//! The library behind the `pkgtool` command: it validates, runs and serves on-device model packages.
//!
//! Modules are layers, and each uses only those before it. `docs/architecture/index.md` describes them.

pub mod source;

pub mod diagnostic;

pub mod package;

pub mod model;

pub mod validate;

pub mod author;
pub mod fix;
pub mod git;

pub mod diff;
pub mod lsp;
pub mod policy;
#[cfg(feature = "remote")]
pub mod remote;

#[cfg(feature = "run")]
pub mod tensor;

#[cfg(feature = "run")]
mod kernels;

#[cfg(feature = "run")]
pub mod engine;

#[cfg(feature = "run")]
pub mod runtime;

#[cfg(feature = "run")]
pub mod text;

#[cfg(feature = "serve")]
pub mod metric;

#[cfg(feature = "serve")]
pub mod database;

#[cfg(feature = "serve")]
pub mod account;

#[cfg(feature = "serve")]
pub mod service;

#[cfg(feature = "serve")]
pub mod train;

#[cfg(feature = "serve")]
pub mod task;

#[cfg(feature = "serve")]
pub mod gateway;

#[cfg(feature = "serve")]
pub mod client;

pub mod cli;
