//! Validation as a whole.

mod bounds;
mod properties;
