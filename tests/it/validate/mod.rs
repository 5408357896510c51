//! Validation through the binary.

mod rules;
