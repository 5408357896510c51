//! Running models: what goes in, what comes out, and what happens to the engine's process.

mod conformance;
mod coupled;
mod examples;
#[cfg(feature = "executorch")]
mod executorch;
#[cfg(not(feature = "executorch"))]
#[path = "executorch_absent.rs"]
mod executorch;
mod generated;
mod hostile;
mod image;
mod input;
mod npy;
mod operators;
#[cfg(feature = "ort")]
mod ort;
#[cfg(feature = "ort")]
mod ort_library;
#[cfg(feature = "ort")]
mod ort_wrong;
mod output;
mod program;
mod program_hostile;
mod recurrence;
mod state;
mod tract;
mod tract_answers;
mod worker;
