//! ExecuTorch's own runtime, whose libraries are found and opened when a program is to be run.
//!
//! Invariant: no type of ExecuTorch leaves this folder, `unsafe` is in `ffi.rs` alone, and no library is
//! opened before a program is to be run. One process has one ExecuTorch. The library between it and
//! this crate (`shim.cpp`) is compiled by the build script (`build_shim.rs`) and carried in the binary.

mod delegate;
mod failure;
mod ffi;
mod layout;
mod missing_kernels;
mod opened;
mod placement;
mod search;
mod session;
mod value;

use std::path::Path;

use super::feedback;
use super::library::{Installations, NativeBackend};
use super::{
    Engine, EngineError, LoadOptions, LoadRequest, Needs, Offer, Placement, Provider, Session,
    offer,
};
use crate::package::Backend;

pub use search::{VERSION, installations, installations_in};

/// The engine's name.
const NAME: &str = "executorch";

/// The engine.
#[derive(Debug)]
pub struct ExecuTorch;

impl Engine for ExecuTorch {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> [&'static str; 2] {
        ["ExecuTorch", "its own programs"]
    }

    fn offers(&self, format: &str, backend: Option<Backend>) -> Vec<Offer> {
        offer::of_executorch(format, backend)
    }

    fn installed(&self, _: Option<&Path>) -> Installations {
        Installations {
            libraries: installations(),
            plugins: Vec::new(),
        }
    }

    /// A program runs on what it was exported for, whatever the backend is called.
    fn reached(&self, placement: &Placement, provider: Provider, backend: Option<Backend>) -> bool {
        let Some(backend) = backend else {
            return true;
        };
        let ran = match provider {
            Provider::Cpu => placement.has_delegate(backend),
            provider => placement.has(provider),
        };
        ran || placement.shares.is_empty()
    }

    fn prepare(&self, _: &LoadOptions) -> Needs {
        opened::prepare()
    }

    /// The library between it and this crate.
    fn writes_files(&self, _: &LoadOptions) -> bool {
        true
    }

    fn load(&self, request: &LoadRequest) -> Result<Box<dyn Session>, EngineError> {
        let session = session::ExecuTorchSession::load(request)?;
        feedback::around(NAME, Box::new(session), request)
    }

    fn backends(&self) -> Result<Vec<NativeBackend>, EngineError> {
        Ok(opened::library()?.backends())
    }
}
