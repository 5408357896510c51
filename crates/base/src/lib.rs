//! The ground of pkgtool: files with positions, findings, package configs, and Git.
//!
//! Invariant: input is read within limits, and every value of a document knows its place. This crate
//! reads no model files and contains no validation rules.

pub mod causes;
pub mod diagnostic;
pub mod git;
pub mod package;
pub mod source;
