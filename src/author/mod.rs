//! Writing configs: from the model files that are there.
//!
//! Invariant: what a config says comes from a file, a directory or the author, and it is told from which; nothing
//! is written that validation calls an error. Asks nobody: what cannot be known is named.

pub mod init;
pub mod write;
