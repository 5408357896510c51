//! What a test needs of this machine: engines that are not in the binary.
//!
//! A machine without them skips the test and says so. `PKGTOOL_REQUIRE` lists those that must be
//! there, as in `ort,qnn,webgpu`: without them the test fails.

use std::path::PathBuf;
use std::sync::OnceLock;

use pkgtool::engine::library::{Installation, Installations};
use pkgtool::engine::{Provider, engine};

use super::environment::Piece;

/// A library of ONNX Runtime for CPU tests: the one the search likes best.
pub(crate) fn ort() -> Option<PathBuf> {
    required(Piece::Ort, library(Provider::Cpu))
}

/// A library of ONNX Runtime on a machine with QNN's plug-in.
pub(crate) fn qnn() -> Option<PathBuf> {
    let there = this_machine()
        .plugins
        .iter()
        .any(|it| it.provider == Provider::Qnn);
    required(Piece::Qnn, library(Provider::Cpu).filter(|_| there))
}

/// A library of ONNX Runtime with WebGPU.
pub(crate) fn webgpu() -> Option<PathBuf> {
    required(Piece::WebGpu, library(Provider::WebGpu))
}

fn library(provider: Provider) -> Option<PathBuf> {
    let has = |library: &Installation| library.providers.contains(&provider);
    let library = this_machine().libraries.iter().find(|it| has(it));
    library.map(|library| library.path.clone())
}

/// Looked at once: it reads all of every library.
fn this_machine() -> &'static Installations {
    static THIS: OnceLock<Installations> = OnceLock::new();
    THIS.get_or_init(|| {
        engine("ort").map_or_else(Installations::default, |ort| ort.installed(None))
    })
}

fn required<T>(piece: Piece, found: Option<T>) -> Option<T> {
    if found.is_none() {
        piece.skip("a test of it", "it is not on this machine");
    }
    found
}
