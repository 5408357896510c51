//! Tests of `validate`, through the library and the binary.

mod bounds;
mod core_ml;
mod formats;
mod hidden;
mod hostile;
mod properties;
mod rules;
mod schema;
mod schema_cases;
mod sloppy;
#[cfg(unix)]
mod special;
mod told;
#[cfg(unix)]
mod walked;
