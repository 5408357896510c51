//! Validation through the binary.

mod rules;
mod schema;
mod schema_cases;
