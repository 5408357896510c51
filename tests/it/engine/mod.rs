//! Tests of the inference engines: their results, the models they reject, and the search for their
//! libraries.

mod bytes;
mod conformance;
#[cfg(feature = "executorch")]
mod executorch;
#[cfg(not(feature = "executorch"))]
#[path = "executorch_absent.rs"]
mod executorch;
mod generated;
mod operators;
#[cfg(feature = "ort")]
mod ort;
#[cfg(feature = "ort")]
mod ort_bytes;
#[cfg(feature = "ort")]
mod ort_library;
#[cfg(feature = "ort")]
mod ort_wrong;
mod payloads;
mod plans;
pub(crate) mod program;
mod program_hostile;
mod recurrence;
mod sizes;
mod standalone;
mod state;
mod text_examples;
mod tract;
mod tract_answers;
