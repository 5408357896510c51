//! Validation through the binary.

mod hostile;
mod rules;
mod schema;
mod schema_cases;
#[cfg(unix)]
mod special;
