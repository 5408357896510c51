//! The integration tests; files mirror `src`.

mod fuzz;
mod model;
mod package;
mod source;
mod validate;
