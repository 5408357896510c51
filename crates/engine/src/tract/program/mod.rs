//! Lowers ExecuTorch programs and Core ML models to tract graphs.
//!
//! A method's instructions, its portable operators and the graphs in its delegate payloads become
//! one graph. tract then optimises across the former borders between delegates. [`ProgramSession`]
//! plans and runs the graph.
//!
//! Invariant: unsupported operators are rejected by name before anything runs; nothing is
//! approximated.

mod attention;
mod builder;
mod calling;
mod convolution;
mod coreml;
mod delegates;
mod frame;
mod mlx;
mod operators;
mod payload;
mod pointwise;
mod product;
mod resize;
mod session;
mod standalone;
mod vulkan;
mod walk;
mod weights;
mod xnnpack;

use std::collections::BTreeSet;
use std::path::Path;

use tract_onnx::tract_core::internal::{DatumType, TypedModel};

pub(super) use session::ProgramSession;
pub(super) use standalone::missing as missing_of_core_ml;

use walk::lower;

use weights::Weights;

use super::guard::Failure;
use crate::tensor::{DType, Tensor};
use pkgtool_base::package::Backend;
use pkgtool_base::source::FileSource;
use pkgtool_model::executorch::body::ProgramBody;

/// A method, lowered to a graph.
pub(super) struct Lowered {
    /// Inputs: the method's tensors, then its states. Outputs: the method's outputs, then the new
    /// states.
    pub(super) model: TypedModel,
    /// The method's inputs that are inputs of the graph. The program fixed the other ones, which
    /// are numbers.
    pub(super) given: Vec<usize>,
    /// Dtypes of the outputs.
    pub(super) outputs: Vec<DType>,
    /// State that the method keeps between runs.
    pub(super) states: Vec<StateTensor>,
}

/// A tensor that a method keeps between runs.
pub(super) struct StateTensor {
    /// Index of the value in the method.
    pub(super) value: usize,
    /// Content before the first run.
    pub(super) initial: std::sync::Arc<tract_onnx::prelude::Tensor>,
}

/// Sizes of each input that a method is lowered for.
pub(super) type InputShapes = Vec<Vec<InputSize>>;

/// A size of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InputSize {
    /// A fixed size.
    Known(u64),
    /// Any size up to a bound; sizes with the same name are equal.
    Any {
        /// Name of the symbol.
        name: String,
        /// Largest allowed size.
        most: u64,
    },
}

/// Returns tract's datum type for a dtype.
pub(super) fn datum_type(dtype: DType) -> DatumType {
    super::elements::datum_type(dtype)
        .filter(|found| *found != DatumType::F16)
        .unwrap_or(DatumType::F32)
}

/// Returns the full names of all supported operators and delegates.
pub(super) fn supported_names() -> Vec<&'static str> {
    operators::names().chain(delegates::names()).collect()
}

/// Returns the full names of the operators and delegates that cannot be lowered.
pub(super) fn missing<'a>(
    operators: impl Iterator<Item = &'a str>,
    delegates: impl Iterator<Item = &'a str>,
) -> BTreeSet<String> {
    let operators = operators.filter(|name| !operators::is_known(name));
    let delegates = delegates.filter(|id| !delegates::is_supported(id));
    operators.chain(delegates).map(str::to_owned).collect()
}

/// Returns whether payloads of a delegate may contain unsupported operators.
pub(super) fn may_be_unsupported(id: &str) -> bool {
    delegates::may_miss(id)
}

/// Returns the unsupported operators of the first delegate payload that has any, with the reason.
///
/// Returns `None` for a file that cannot be read.
pub(super) fn unsupported_in_payloads(
    model: &Path,
    method: &str,
) -> Option<(BTreeSet<String>, String)> {
    let source = FileSource::open(model).ok()?;
    let body = ProgramBody::read(&source).ok()?;
    let weights = Weights::open(model, body.named).ok()?;
    let method = body
        .methods
        .into_iter()
        .find(|found| found.name == method)?;
    delegates::first_unsupported(&method.delegates, &weights)
        .unwrap_or_else(|failure| Some((BTreeSet::new(), failure.reason)))
}

/// Returns the backend of a delegate if its half-precision graphs are computed differently from its
/// hardware.
pub(super) fn inexact_backend(id: &str) -> Option<Backend> {
    delegates::reading(id)
}

/// Explains why these names cannot be lowered, and names the runtime that supports them.
pub(super) fn unsupported_reason(missing: &BTreeSet<String>) -> String {
    let (operators, delegates): (Vec<_>, Vec<_>) =
        missing.iter().partition(|name| name.contains("::"));
    let mut reasons = Vec::new();
    if !operators.is_empty() {
        let names: Vec<String> = operators.iter().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        reasons.push(format!(
            "operators not implemented: {names}; ExecuTorch itself runs them"
        ));
    }
    for id in delegates {
        let runtime = delegates::runner(id);
        reasons.push(format!(
            "delegate {id} has no portable form; {runtime} runs it"
        ));
    }
    reasons.join("; ")
}

/// Converts a tensor to tract's representation of it in a graph.
pub(super) fn give(tensor: &Tensor) -> Result<tract_onnx::prelude::Tensor, Failure> {
    let widened = matches!(tensor.dtype(), DType::Float16 | DType::Bfloat16);
    if !widened {
        return super::elements::to_tract(tensor);
    }
    let (halves, _) = tensor.bytes().as_chunks::<2>();
    let values = halves
        .iter()
        .map(|half| weights::widen(tensor.dtype(), *half));
    let values: Vec<f32> = values.collect();
    let shape = super::elements::sizes(tensor.shape())?;
    super::guard::guarded(|| tract_onnx::prelude::Tensor::from_shape(&shape, &values))
}
