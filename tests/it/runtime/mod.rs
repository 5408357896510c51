//! Running models: what goes in, what comes out, and what happens to the engine's process.

mod conformance;
mod examples;
mod hostile;
mod image;
mod input;
mod npy;
#[cfg(feature = "ort")]
mod ort;
#[cfg(feature = "ort")]
mod ort_library;
mod output;
mod program;
mod tract;
mod worker;
