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
mod source;
mod support;
mod validate;
