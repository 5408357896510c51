//! The integration tests; files mirror `src`.

mod architecture;
mod cli;
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
mod validate;
