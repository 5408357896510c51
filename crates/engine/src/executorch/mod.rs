//! The ExecuTorch engine: finds ExecuTorch's own runtime libraries and opens them when a program is
//! to run.
//!
//! `shim.cpp` is a C++ library between ExecuTorch and this crate. The build script
//! (`build_shim.rs`) compiles it, and the binary contains it.
//!
//! Invariant: types of ExecuTorch stay in this folder, only `ffi.rs` uses `unsafe`, and no library
//! is opened before a program is to run. A process opens one ExecuTorch.

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
    Engine, EngineError, LoadOptions, LoadRequest, Offer, Placement, Provider, RequiredFiles,
    Session, offer,
};
use pkgtool_base::package::Backend;

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

    /// A program runs on the backends that it was exported for, whatever name the provider has.
    fn ran_on_backend(
        &self,
        placement: &Placement,
        provider: Provider,
        backend: Option<Backend>,
    ) -> bool {
        let Some(backend) = backend else {
            return true;
        };
        let ran = match provider {
            Provider::Cpu => placement.has_delegate(backend),
            provider => placement.has(provider),
        };
        ran || placement.shares.is_empty()
    }

    fn prepare(&self, _: &LoadOptions) -> RequiredFiles {
        opened::prepare()
    }

    /// The shim is written to a file.
    fn writes_files(&self, _: &LoadOptions) -> bool {
        true
    }

    fn load(&self, request: &LoadRequest) -> Result<Box<dyn Session>, EngineError> {
        let session = session::ExecuTorchSession::load(request)?;
        feedback::with_feedback(NAME, Box::new(session), request)
    }

    fn backends(&self) -> Result<Vec<NativeBackend>, EngineError> {
        Ok(opened::library()?.backends())
    }
}
