//! Authoring: `pkgtool init` writes package configs for directories of model files.
//!
//! Invariant: every value in a config comes from a file, a directory or the author, and its source
//! is reported. A config is written only if validation finds no errors in it. The module never
//! prompts; unknown required fields are reported as missing.

pub mod init;
pub mod write;
