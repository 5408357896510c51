//! The tract engine.

use super::{Engine, EngineError, LoadRequest, Session};

/// The engine.
#[derive(Debug)]
pub struct Tract;

impl Engine for Tract {
    fn name(&self) -> &'static str {
        "tract"
    }

    fn load(&self, _: &LoadRequest) -> Result<Box<dyn Session>, EngineError> {
        Err(EngineError::Unavailable {
            what: "tract".to_owned(),
            reason: "not written yet".to_owned(),
            help: "write it".to_owned(),
        })
    }
}
