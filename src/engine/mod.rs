//! What runs models: engines, their sessions, and the libraries they are found in.
//!
//! Invariant: no type of an inference library leaves its engine's folder; whatever a model does, the
//! caller gets an [`EngineError`], never a panic.

mod byte_sums;
mod carrying;
mod contract;
mod error;
mod feedback;
mod lanes;
pub mod library;
mod offer;
mod ort_option;
mod processor;
mod provider;
mod reading;
mod refusal;
#[cfg_attr(
    not(any(feature = "executorch", feature = "ort")),
    expect(dead_code, reason = "no engine of this build looks for libraries")
)]
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

pub use byte_sums::ByteSums;
pub use carrying::{Along, Begins, Carried, Carrying, Lanes, Row};
pub use contract::{Answer, Engine, Gaps, LoadOptions, LoadRequest, Needs, Session};
pub use error::EngineError;
pub use offer::Offer;
pub use ort_option::OrtOption;
pub use processor::{cpu_features, instruction_sets};
pub use provider::{Placement, Provider, Share};
pub use reading::{Reading, Rounding};

use std::path::Path;

use crate::model::Method;

/// All engines, best first: what a native library runs before what this build runs by itself.
pub static ENGINES: &[&dyn Engine] = &[&ort::OnnxRuntime, &executorch::ExecuTorch, &tract::Tract];

/// The engine of this name.
pub fn engine(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.iter().copied().find(|engine| engine.name() == name)
}

/// What is to be told of the answers of the engines that need nothing but this build.
pub fn reading_everywhere(format: &str, method: &Method) -> Option<Reading> {
    let mut everywhere = ENGINES.iter().filter(|engine| engine.is_everywhere());
    everywhere.find_map(|engine| engine.reading(format, method))
}

/// What every engine lacks that needs nothing but this build: what then runs on no machine by itself. None
/// if one of them lacks nothing.
pub fn gaps_everywhere(format: &str, method: &Method) -> Option<Gaps> {
    let mut everywhere = ENGINES.iter().filter(|engine| engine.is_everywhere());
    let first = everywhere.next()?.gaps(format, method)?;
    everywhere
        .all(|engine| engine.gaps(format, method).is_some())
        .then_some(first)
}

/// The same of what stands inside a model's file: the operators in the payloads of delegates. On Apple's systems
/// a native engine may have what they are for, and only a run tells.
pub fn gaps_inside_everywhere(model: &Path, format: &str, method: &Method) -> Option<Gaps> {
    let native = |engine: &&&dyn Engine| engine.is_built() && !engine.is_everywhere();
    let mut native = ENGINES.iter().filter(native);
    if cfg!(target_vendor = "apple") && native.any(|engine| !engine.offers(format, None).is_empty())
    {
        return None;
    }
    let mut everywhere = ENGINES.iter().filter(|engine| engine.is_everywhere());
    let first = everywhere.next()?.gaps_inside(model, format, method)?;
    everywhere
        .all(|engine| engine.gaps_inside(model, format, method).is_some())
        .then_some(first)
}
