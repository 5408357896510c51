//! A stand-in for the ExecuTorch engine in builds without it; loading reports the missing feature.

use super::library::NativeBackend;
use super::{Engine, EngineError, LoadRequest, Offer, Session, offer};
use pkgtool_base::package::Backend;

/// The stand-in engine.
#[derive(Debug)]
pub struct ExecuTorch;

impl Engine for ExecuTorch {
    fn name(&self) -> &'static str {
        "executorch"
    }

    fn title(&self) -> [&'static str; 2] {
        ["ExecuTorch", "its own programs"]
    }

    fn offers(&self, format: &str, backend: Option<Backend>) -> Vec<Offer> {
        offer::of_executorch(format, backend)
    }

    fn is_built(&self) -> bool {
        false
    }

    fn load(&self, _: &LoadRequest) -> Result<Box<dyn Session>, EngineError> {
        Err(absent())
    }

    fn backends(&self) -> Result<Vec<NativeBackend>, EngineError> {
        Err(absent())
    }
}

fn absent() -> EngineError {
    EngineError::Unavailable {
        what: "ExecuTorch".to_owned(),
        reason: "this build has no `executorch` feature".to_owned(),
        help: if cfg!(any(target_os = "linux", target_os = "macos")) {
            "build with `--features executorch`".to_owned()
        } else {
            "ExecuTorch needs Linux or macOS: choose another engine".to_owned()
        },
    }
}
