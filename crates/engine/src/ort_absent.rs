//! A stand-in for the ONNX Runtime engine in builds without it; loading reports the missing
//! feature.

use super::{Engine, EngineError, LoadRequest, Offer, Session, offer};
use pkgtool_base::package::Backend;

/// The stand-in engine.
#[derive(Debug)]
pub struct OnnxRuntime;

impl Engine for OnnxRuntime {
    fn name(&self) -> &'static str {
        "ort"
    }

    fn title(&self) -> [&'static str; 2] {
        ["ONNX Runtime", "ONNX models"]
    }

    fn offers(&self, format: &str, backend: Option<Backend>) -> Vec<Offer> {
        offer::of_onnx_runtime(format, backend)
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
