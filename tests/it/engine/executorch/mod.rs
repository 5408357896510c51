//! The ExecuTorch engine on real, broken and unsupported programs, on machines with the ExecuTorch
//! libraries.

mod hostile;
mod indices;
mod library;
mod mutants;
mod programs;
mod refusals;
mod verdict;

use std::path::{Path, PathBuf};
use std::time::Duration;

use pkgtool_engine::runtime::worker::{Launcher, Worker};
use pkgtool_engine::tensor::{DType, Signature, TensorSpec};
use pkgtool_engine::{EngineError, LoadOptions, LoadRequest, Provider, Session, engine};
use pkgtool_model::{self as model, ModelValue, ValueKind};

use crate::support::environment::EnvironmentPiece;

/// Returns true if ExecuTorch is installed; otherwise prints that the test is skipped.
#[track_caller]
fn is_there(test: &str) -> bool {
    EnvironmentPiece::ExecuTorch.or_skip(test).is_some()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/executorch")
}

/// Returns a request to load a method of a program, on one thread.
fn request(path: &Path, method: &str) -> LoadRequest {
    let (info, _) = model::open(path).expect("a sound program");
    let method = info.method(method).expect("the method");
    let specs = |values: &[ModelValue]| values.iter().filter_map(spec).collect();
    LoadRequest {
        model: path.to_owned(),
        signature: Signature {
            method: method.name.clone(),
            inputs: specs(&method.inputs),
            outputs: specs(&method.outputs),
        },
        options: LoadOptions {
            threads: Some(1),
            provider: Provider::Cpu,
            ..LoadOptions::default()
        },
    }
}

/// Returns the tensor of a value. Numbers are tensors of rank 0; `None` values are not part of a
/// signature.
fn spec(value: &ModelValue) -> Option<TensorSpec> {
    let (dtype, dims) = match &value.kind {
        ValueKind::None => return None,
        ValueKind::Int(_) => (DType::Int64, Some(Vec::new())),
        ValueKind::Double(_) => (DType::Float64, Some(Vec::new())),
        ValueKind::Bool(_) => (DType::Bool, Some(Vec::new())),
        ValueKind::Tensor { info, .. } => (
            info.element.dtype().unwrap_or(DType::Uint8),
            info.dims.clone(),
        ),
        // The engine must reject these.
        _ => (DType::Uint8, None),
    };
    Some(TensorSpec {
        name: "value".to_owned(),
        dtype,
        dims,
        fixed: None,
        pixels: None,
    })
}

/// Loads a session in this process.
fn load(request: &LoadRequest) -> Result<Box<dyn Session>, EngineError> {
    engine("executorch")
        .expect("the engine is part of this build")
        .load(request)
}

fn launcher() -> Launcher {
    Launcher {
        program: PathBuf::from(env!("CARGO_BIN_EXE_pkgtool")),
        timeout: Some(Duration::from_mins(1)),
        memory_limit: None,
        in_background: false,
        device: None,
    }
}

/// Loads a session in a worker process.
fn worker(request: &LoadRequest) -> Result<Worker, EngineError> {
    launcher().load("executorch", request)
}
