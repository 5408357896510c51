//! Engines, which run models: ONNX Runtime, ExecuTorch and the built-in tract, their sessions, and
//! the search for native libraries.
//!
//! Each engine implements [`Engine`], which loads a model into a [`Session`]. Callers pick from
//! [`ENGINES`].
//!
//! Invariant: types of an inference library stay in the folder of their engine. Callers get an
//! [`EngineError`] for every failure, never a panic.

mod byte_sums;
mod carrying;
mod contract;
mod error;
mod feedback;
#[expect(
    clippy::similar_names,
    reason = "`side` and `size` are established terms"
)]
mod frontends;
#[expect(
    clippy::similar_names,
    clippy::many_single_char_names,
    clippy::float_cmp,
    reason = "matrices are a and b, sizes m, k and n, `side` and `size` are established terms; \
              numbers of a program are exactly what it says"
)]
mod graph;
mod lanes;
pub mod library;
mod offer;
mod ort_option;
#[cfg(any(feature = "executorch", feature = "ort"))]
mod placed_work;
mod processor;
mod profile;
mod provider;
mod reading;
mod refusal;
pub mod runtime;
#[cfg_attr(
    not(any(feature = "executorch", feature = "ort")),
    expect(dead_code, reason = "no engine of this build searches for libraries")
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
pub mod tensor;
pub mod tract;

pub use byte_sums::ByteSums;
pub use carrying::{CarriedTensor, Carrying, Lanes, RunStart, StateRow, TensorAxis};
pub use contract::{Engine, Gaps, LoadOptions, LoadRequest, RequiredFiles, RunAnswer, Session};
pub use error::EngineError;
pub use offer::Offer;
pub use ort_option::OrtOption;
pub use processor::{cpu_features, instruction_sets};
pub use profile::{NodeSpan, Profile, ProfiledNode, ProfiledRun};
pub use provider::{AssignedOperators, Placement, Provider, Share};
pub use reading::{PortableReading, Rounding};

use std::path::Path;

use pkgtool_model::Method;

/// All engines, best first: engines with a native library precede the built-in one.
pub static ENGINES: &[&dyn Engine] = &[&ort::OnnxRuntime, &executorch::ExecuTorch, &tract::Tract];

/// Returns the engine of this name.
pub fn engine(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.iter().copied().find(|engine| engine.name() == name)
}

/// Returns the notice for answers of built-in engines to this method, if they read a backend's
/// program portably.
pub fn reading_without_library(format: &str, method: &Method) -> Option<PortableReading> {
    let mut everywhere = ENGINES.iter().filter(|engine| engine.needs_no_library());
    everywhere.find_map(|engine| engine.portable_reading(format, method))
}

/// Returns the gaps that all built-in engines share for this method. Such a method runs only with a
/// native library. `None` if one of them runs all of it.
pub fn gaps_without_library(format: &str, method: &Method) -> Option<Gaps> {
    let mut everywhere = ENGINES.iter().filter(|engine| engine.needs_no_library());
    let first = everywhere.next()?.gaps(format, method)?;
    everywhere
        .all(|engine| engine.gaps(format, method).is_some())
        .then_some(first)
}

/// Like [`gaps_without_library`], for a model's graph with the attributes of its operators. Nothing is
/// missing if the reason is empty. `None` if this is unknown.
pub fn graph_gaps_without_library(model: &Path, format: &str) -> Option<Gaps> {
    let mut everywhere = ENGINES.iter().filter(|engine| engine.needs_no_library());
    everywhere.find_map(|engine| engine.graph_gaps(model, format))
}

/// Like [`gaps_without_library`], for the contents of a model file: the operators in the payloads of
/// delegates. On Apple's systems a native engine may support these payloads, which shows only when
/// the method runs; the result is `None` then.
pub fn payload_gaps_without_library(model: &Path, format: &str, method: &Method) -> Option<Gaps> {
    let native = |engine: &&&dyn Engine| engine.is_built() && !engine.needs_no_library();
    let mut native = ENGINES.iter().filter(native);
    if cfg!(target_vendor = "apple") && native.any(|engine| !engine.offers(format, None).is_empty())
    {
        return None;
    }
    let mut everywhere = ENGINES.iter().filter(|engine| engine.needs_no_library());
    let first = everywhere.next()?.payload_gaps(model, format, method)?;
    everywhere
        .all(|engine| engine.payload_gaps(model, format, method).is_some())
        .then_some(first)
}
