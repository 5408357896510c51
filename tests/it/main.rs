//! The integration tests; files mirror `src`.

mod model;
mod support;
mod validate;
