//! What runs where: which file of a package, on which engine, in which process, and how long it takes.
//!
//! Invariant: what ran is told as it was; whatever a model does to the process it runs in, the caller gets
//! an error.

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
