//! Running models: selects a model file of a package, an engine and a process, and measures run
//! times.
//!
//! Invariant: reports name the engine and provider that actually ran. If a model crashes its
//! process, the caller gets an error.

pub mod busy;
pub mod cores;
pub mod device;
pub mod every;
pub mod machine;
pub mod measure;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod page_cache;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[path = "page_cache_absent.rs"]
mod page_cache;
pub mod parsers;
pub mod peak_memory;
pub mod picture;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod pinning;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[path = "pinning_absent.rs"]
mod pinning;
pub mod precision;
pub mod process;
pub mod process_facts;
pub mod pss;
pub mod restart;
pub mod selection;
pub mod statistics;
pub mod target;
pub mod worker;
