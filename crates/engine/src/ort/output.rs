//! Converts the outputs of a run and checks them against the model's signature.

use ort::value::DynValue;

use super::{NAME, value};
use crate::EngineError;
use crate::tensor::{Tensor, TensorSpec};

/// Converts a value to the output that `spec` declares.
pub(super) fn of(spec: &TensorSpec, value: DynValue) -> Result<Tensor, EngineError> {
    let name = &spec.name;
    let tensor =
        value::output(value).map_err(|error| failed(format!("output `{name}`: {error}")))?;
    if tensor.dtype() == spec.dtype {
        return Ok(tensor);
    }
    let (found, expected) = (tensor.dtype(), spec.dtype);
    Err(failed(format!(
        "output `{name}` has the wrong dtype: expected {expected}, got {found}"
    )))
}

/// An error of a run that the library itself did not report.
pub(super) fn failed(reason: String) -> EngineError {
    EngineError::Run {
        engine: NAME.to_owned(),
        operator: None,
        reason,
    }
}
