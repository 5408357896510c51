//! ExecuTorch on real programs, broken ones, and ones that it cannot run, where its libraries are on
//! this machine.

mod hostile;
mod indices;
mod library;
mod mutants;
mod programs;
mod refusals;
mod verdict;

use std::path::{Path, PathBuf};
use std::time::Duration;

use pkgtool::engine::{EngineError, LoadOptions, LoadRequest, Provider, Session, engine};
use pkgtool::model::{self, Value, ValueKind};
use pkgtool::runtime::worker::{Launcher, Worker};
use pkgtool::tensor::{DType, Signature, TensorSpec};

use crate::support::environment::Piece;

/// Whether there is an ExecuTorch; says so if not.
#[track_caller]
fn is_there(test: &str) -> bool {
    Piece::ExecuTorch.or_skip(test).is_some()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/executorch")
}

/// A method of a program, on one thread.
fn request(path: &Path, method: &str) -> LoadRequest {
    let (info, _) = model::open(path).expect("a sound program");
    let method = info.method(method).expect("the method");
    let specs = |values: &[Value]| values.iter().filter_map(spec).collect();
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

/// Numbers are tensors of rank 0; what is nothing is not in a signature.
fn spec(value: &Value) -> Option<TensorSpec> {
    let (dtype, dims) = match &value.kind {
        ValueKind::None => return None,
        ValueKind::Int(_) => (DType::Int64, Some(Vec::new())),
        ValueKind::Double(_) => (DType::Float64, Some(Vec::new())),
        ValueKind::Bool(_) => (DType::Bool, Some(Vec::new())),
        ValueKind::Tensor { info, .. } => (
            DType::from_element(&info.element).unwrap_or(DType::Uint8),
            info.dims.clone(),
        ),
        // To be refused by the engine.
        ValueKind::String(_) | ValueKind::Other(_) => (DType::Uint8, None),
    };
    Some(TensorSpec {
        name: "value".to_owned(),
        dtype,
        dims,
        fixed: None,
    })
}

/// A session in this process.
fn load(request: &LoadRequest) -> Result<Box<dyn Session>, EngineError> {
    engine("executorch").expect("it is built").load(request)
}

fn launcher() -> Launcher {
    Launcher {
        program: PathBuf::from(env!("CARGO_BIN_EXE_pkgtool")),
        timeout: Some(Duration::from_mins(1)),
        memory_limit: None,
    }
}

/// A session in a process of its own.
fn worker(request: &LoadRequest) -> Result<Worker, EngineError> {
    launcher().load("executorch", request)
}
