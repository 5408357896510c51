//! Finds the inference engines on this machine that are not compiled into the binary.
//!
//! A test skips itself, with a message, when its engine is missing. `PKGTOOL_REQUIRE` lists the
//! engines whose absence fails the test instead, as in `ort,qnn,webgpu`.

use std::path::PathBuf;
use std::sync::OnceLock;

use pkgtool_engine::library::{Installation, Installations};
use pkgtool_engine::{Provider, engine};

use super::environment::EnvironmentPiece;

/// Returns the ONNX Runtime library for CPU tests: the one that the search ranks first.
pub(crate) fn ort() -> Option<PathBuf> {
    required(EnvironmentPiece::Ort, library(Provider::Cpu))
}

/// Returns an ONNX Runtime library on a machine with the QNN plug-in.
pub(crate) fn qnn() -> Option<PathBuf> {
    let there = this_machine()
        .plugins
        .iter()
        .any(|it| it.provider == Provider::Qnn);
    required(
        EnvironmentPiece::Qnn,
        library(Provider::Cpu).filter(|_| there),
    )
}

/// Returns an ONNX Runtime library with WebGPU.
pub(crate) fn webgpu() -> Option<PathBuf> {
    required(EnvironmentPiece::WebGpu, library(Provider::WebGpu))
}

fn library(provider: Provider) -> Option<PathBuf> {
    let has = |library: &Installation| library.providers.contains(&provider);
    let library = this_machine().libraries.iter().find(|it| has(it));
    library.map(|library| library.path.clone())
}

/// Searches this machine once, because the search reads every library completely.
fn this_machine() -> &'static Installations {
    static THIS: OnceLock<Installations> = OnceLock::new();
    THIS.get_or_init(|| {
        engine("ort").map_or_else(Installations::default, |ort| ort.installed(None))
    })
}

fn required<T>(piece: EnvironmentPiece, found: Option<T>) -> Option<T> {
    if found.is_none() {
        piece.skip("a test of it", "it is not on this machine");
    }
    found
}
