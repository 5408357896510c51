//! Running models: tensors, engines, sessions, and which engine runs what.
//!
//! Invariant: no type of an inference library leaves its engine's folder; whatever a model does, the
//! caller gets an [`EngineError`], never a panic.

pub mod agreement;
pub mod bundled;
mod dtype;
mod engine;
pub mod input;
pub mod library;
pub mod limit;
pub mod machine;
pub mod measure;
pub mod npy;
mod output;
pub mod peak_memory;
pub mod precision;
mod refusal;
pub mod selection;
mod signature;
pub mod statistics;
mod summary;
#[cfg(any(feature = "executorch", feature = "ort"))]
pub mod surroundings;
pub mod target;
mod tensor;

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
pub mod worker;

pub use dtype::DType;
pub use engine::{
    Answer, Engine, EngineError, LoadOptions, LoadRequest, Placement, Provider, Session, Share,
};
pub use output::{OutputError, write_outputs};
pub use signature::{Signature, SignatureError, TensorSpec};
pub use summary::{Scalar, Summary};
pub use tensor::{MAX_BYTES, Tensor, TensorError, byte_size};

/// All engines of this build.
pub static ENGINES: &[&dyn Engine] = &[&ort::OnnxRuntime, &executorch::ExecuTorch, &tract::Tract];

/// The engine of this name.
pub fn engine(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.iter().copied().find(|engine| engine.name() == name)
}
