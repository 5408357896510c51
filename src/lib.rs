#![doc = include_str!("ARCHITECTURE.md")]

pub mod source;

pub mod diagnostic;

pub mod package;

pub mod model;

pub mod validate;

#[cfg(feature = "run")]
pub mod runtime;

pub mod cli;
