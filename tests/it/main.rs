//! The integration tests; files mirror `src`.

#[cfg(feature = "serve")]
mod account;
mod architecture;
mod author;
mod book;
mod cli;
#[cfg(feature = "serve")]
mod database;
mod diff;
#[cfg(feature = "run")]
mod engine;
mod examples;
mod fix;
mod fuzz;
#[cfg(feature = "serve")]
mod gateway;
mod lsp;
mod model;
mod package;
mod packaging;
mod policy;

#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "run")]
mod runtime;
#[cfg(feature = "serve")]
mod service;
mod source;
mod support;
#[cfg(feature = "serve")]
mod task;
#[cfg(feature = "run")]
mod tensor;
#[cfg(feature = "run")]
mod text;
#[cfg(feature = "serve")]
mod torture;
#[cfg(feature = "serve")]
mod train;
mod validate;
