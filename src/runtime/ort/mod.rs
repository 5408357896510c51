//! The ort engine.

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
            what: "ort".to_owned(),
            reason: "not written yet".to_owned(),
            help: "write it".to_owned(),
        })
    }
}
