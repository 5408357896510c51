//! The integration tests; files mirror `src`.

mod architecture;
mod cli;
mod examples;
mod model;
mod readme;
mod support;
mod validate;
