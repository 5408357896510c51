//! What a run gives, as the model's signature promises it.

use ort::value::DynValue;

use super::{NAME, value};
use crate::engine::EngineError;
use crate::tensor::{Tensor, TensorSpec};

/// A value as the output that `spec` promises.
pub(super) fn of(spec: &TensorSpec, value: DynValue) -> Result<Tensor, EngineError> {
    let name = &spec.name;
    let tensor =
        value::output(value).map_err(|error| failed(format!("output `{name}`: {error}")))?;
    if tensor.dtype() == spec.dtype {
        return Ok(tensor);
    }
    let (found, expected) = (tensor.dtype(), spec.dtype);
    Err(failed(format!(
        "output `{name}` is {found}, and the model says {expected}"
    )))
}

/// A run that failed otherwise than the library says.
pub(super) fn failed(reason: String) -> EngineError {
    EngineError::Run {
        engine: NAME.to_owned(),
        operator: None,
        reason,
    }
}
