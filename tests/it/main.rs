//! The integration tests; files mirror `src`.

mod model;
mod package;
mod source;
mod validate;
