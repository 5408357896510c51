//! The ONNX Runtime engine: finds the library and loads it when a model is loaded.
//!
//! Invariant: no type of the `ort` crate leaves this folder, and no library is loaded before a
//! model is to run. A process loads only one library, so models run in worker processes.

mod assigned;
mod byte_mode;
mod carried;
mod environment;
mod events;
mod failure;
mod installation;
mod known_wrong;
mod output;
mod placement;
mod provider;
mod recorded;
mod search;
mod session;
mod shared;
mod value;

use std::path::Path;

use super::library::Installations;
use super::{
    Engine, EngineError, LoadOptions, LoadRequest, Offer, RequiredFiles, Session, offer, processor,
};
use pkgtool_base::package::Backend;

pub use installation::{installations, installations_in};

/// The engine's name.
const NAME: &str = "ort";

/// The engine.
#[derive(Debug)]
pub struct OnnxRuntime;

impl Engine for OnnxRuntime {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> [&'static str; 2] {
        ["ONNX Runtime", "ONNX models"]
    }

    fn offers(&self, format: &str, backend: Option<Backend>) -> Vec<Offer> {
        offer::of_onnx_runtime(format, backend)
    }

    fn installed(&self, library: Option<&Path>) -> Installations {
        installations(library)
    }

    fn prepare(&self, options: &LoadOptions) -> RequiredFiles {
        environment::prepare(options)
    }

    /// Observing writes a profile of the session.
    fn writes_files(&self, options: &LoadOptions) -> bool {
        options.observe || options.profile
    }

    fn load(&self, request: &LoadRequest) -> Result<Box<dyn Session>, EngineError> {
        let extension = request.model.extension();
        if extension.is_some_and(|extension| extension.eq_ignore_ascii_case("pte")) {
            return Err(EngineError::Unsupported {
                engine: NAME.to_owned(),
                operators: Vec::new(),
                reason: "ONNX Runtime reads ONNX models, not ExecuTorch programs".to_owned(),
            });
        }
        processor::choose(request.options.cpu_features.as_deref())?;
        let verdict = known_wrong::check(request)?;
        Ok(Box::new(session::OrtSession::load(request, verdict)?))
    }
}
