//! Running models: selects a model file of a package, an engine and a process, and measures run
//! times.
//!
//! Invariant: reports name the engine and provider that actually ran. If a model crashes its
//! process, the caller gets an error.

pub mod busy;
pub mod device;
pub mod every;
pub mod machine;
pub mod measure;
pub mod parsers;
pub mod peak_memory;
pub mod picture;
pub mod precision;
pub mod process;
pub mod selection;
pub mod statistics;
pub mod target;
pub mod worker;
