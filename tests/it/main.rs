//! The tests that run the program, and those of servers and engines. Each crate has the others.

#[cfg(feature = "serve")]
mod account;
#[cfg(feature = "run")]
mod answers;
mod architecture;
mod author;
mod book;
mod cli;
#[cfg(feature = "serve")]
mod database;
#[cfg(all(unix, feature = "serve"))]
mod device;
mod diff;
#[cfg(feature = "run")]
mod engine;
#[cfg(feature = "run")]
mod eval;
mod examples;
mod fix;
mod fuzz;
#[cfg(feature = "serve")]
mod gateway;
#[cfg(feature = "run")]
mod images;
mod lsp;
mod packaging;
mod policy;

#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "run")]
mod runtime;
#[cfg(feature = "serve")]
mod service;
mod support;
#[cfg(feature = "serve")]
mod task;
#[cfg(feature = "run")]
mod text;
#[cfg(feature = "serve")]
mod torture;
#[cfg(feature = "serve")]
mod train;
mod validate;
#[cfg(feature = "run")]
mod voices;
