//! Tests of package conventions.

mod properties;
