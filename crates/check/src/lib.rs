//! Checks of packages and the tools around them: validation, project policy, `init`, `fix`, `diff`,
//! and the language server.
//!
//! Invariant: models are never run; only their headers are read. This crate does not depend on
//! engines, servers or the command line.

pub mod author;
pub mod diff;
pub mod fix;
pub mod lsp;
pub mod policy;
pub mod validate;
