//! ONNX Runtime in a build without it: an engine that says so.

use super::{Engine, EngineError, LoadRequest, Session};

/// The engine.
#[derive(Debug)]
pub struct OnnxRuntime;

impl Engine for OnnxRuntime {
    fn name(&self) -> &'static str {
        "ort"
    }

    fn load(&self, _: &LoadRequest) -> Result<Box<dyn Session>, EngineError> {
        Err(EngineError::Unavailable {
            what: "ONNX Runtime".to_owned(),
            reason: "this build has no `ort` feature".to_owned(),
            help: "build with `--features ort`".to_owned(),
        })
    }
}
