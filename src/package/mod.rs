//! What a package is: its config, variants, tensor specs, precision list, references and names.
//!
//! Knows the format's vocabulary; knows no rule and opens no model file.

pub mod dtype;

pub use dtype::DType;
