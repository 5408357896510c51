//! What runs models: engines, their sessions, and the libraries they are found in.
//!
//! Invariant: no type of an inference library leaves its engine's folder; whatever a model does, the
//! caller gets an [`EngineError`], never a panic.

mod contract;
pub mod library;
mod refusal;
#[cfg(any(feature = "executorch", feature = "ort"))]
pub mod surroundings;

#[cfg(feature = "executorch")]
pub mod executorch;
#[cfg(not(feature = "executorch"))]
#[path = "executorch_absent.rs"]
pub mod executorch;
#[cfg(feature = "ort")]
pub mod ort;
#[cfg(not(feature = "ort"))]
#[path = "ort_absent.rs"]
pub mod ort;
pub mod tract;

pub use contract::{
    Answer, Engine, EngineError, LoadOptions, LoadRequest, Placement, Provider, Session, Share,
};

/// All engines of this build.
pub static ENGINES: &[&dyn Engine] = &[&ort::OnnxRuntime, &executorch::ExecuTorch, &tract::Tract];

/// The engine of this name.
pub fn engine(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.iter().copied().find(|engine| engine.name() == name)
}
