//! The integration tests; files mirror `src`.

#[cfg(feature = "serve")]
mod account;
mod architecture;
mod cli;
#[cfg(feature = "serve")]
mod database;
#[cfg(feature = "run")]
mod engine;
mod examples;
mod fuzz;
#[cfg(feature = "serve")]
mod gateway;
mod model;
mod package;
mod readme;
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
