//! ONNX Runtime in a build without it: an engine that says so.

use std::path::Path;

use super::library::Installations;
use super::{Engine, EngineError, LoadRequest, Session};

/// The engine.
#[derive(Debug)]
pub struct OnnxRuntime;

/// What there is on this machine: nothing that this build could use.
pub fn installations(_: Option<&Path>) -> Installations {
    Installations::default()
}

impl Engine for OnnxRuntime {
    fn name(&self) -> &'static str {
        "ort"
    }

    fn is_built(&self) -> bool {
        false
    }

    fn load(&self, _: &LoadRequest) -> Result<Box<dyn Session>, EngineError> {
        Err(EngineError::Unavailable {
            what: "ONNX Runtime".to_owned(),
            reason: "this build has no `ort` feature".to_owned(),
            help: "build with `--features ort`".to_owned(),
        })
    }
}
