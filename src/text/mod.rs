//! Text with a model: from tokens that are fed to what a reader is given.
//!
//! Invariant: what a client or a package says ends in an answer or an error, whatever it says. Knows no
//! service, no HTTP and no terminal.

pub mod decoder;
