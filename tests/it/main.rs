//! The integration tests; files mirror `src`.

mod cli;
mod model;
mod support;
mod validate;
