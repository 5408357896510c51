//! Lowers ExecuTorch programs and Core ML models to tract graphs.
//!
//! A method's instructions, its portable operators and the graphs in its delegate payloads become
//! one graph. tract then optimises across the former borders between delegates. The engine
//! plans and runs the graph.
//!
//! Invariant: unsupported operators are rejected by name before anything runs; nothing is
//! approximated.

pub(crate) mod delegates;
pub(crate) mod standalone;
mod walk;

use std::collections::BTreeSet;
use std::path::Path;

use tract_onnx::tract_core::internal::TypedModel;

pub(crate) use standalone::missing as missing_of_core_ml;

pub(crate) use walk::lower;

use crate::graph::builder::InputSize;
use crate::graph::operators;
use crate::graph::weights::ProgramWeights;
use crate::tensor::DType;
use pkgtool_base::package::Backend;
use pkgtool_base::source::FileSource;
use pkgtool_model::executorch::body::ProgramBody;

/// A method, lowered to a graph.
pub(crate) struct Lowered {
    /// Inputs: the method's tensors, then its states. Outputs: the method's outputs, then the new
    /// states.
    pub(crate) model: TypedModel,
    /// The method's inputs that are inputs of the graph. The program fixed the other ones, which
    /// are numbers.
    pub(crate) given: Vec<usize>,
    /// Dtypes of the outputs.
    pub(crate) outputs: Vec<DType>,
    /// State that the method keeps between runs.
    pub(crate) states: Vec<KeptTensor>,
}

/// A tensor that a method keeps between runs.
pub(crate) struct KeptTensor {
    /// Index of the value in the method.
    pub(crate) value: usize,
    /// Content before the first run.
    pub(crate) initial: std::sync::Arc<tract_onnx::prelude::Tensor>,
}

/// Sizes of each input that a method is lowered for.
pub(crate) type InputShapes = Vec<Vec<InputSize>>;

/// Returns the full names of all supported operators and delegates.
pub(crate) fn supported_names() -> Vec<&'static str> {
    operators::names().chain(delegates::names()).collect()
}

/// Returns the full names of the operators and delegates that cannot be lowered.
pub(crate) fn missing<'a>(
    operators: impl Iterator<Item = &'a str>,
    delegates: impl Iterator<Item = &'a str>,
) -> BTreeSet<String> {
    let operators = operators.filter(|name| !operators::is_known(name));
    let delegates = delegates.filter(|id| !delegates::is_supported(id));
    operators.chain(delegates).map(str::to_owned).collect()
}

/// Returns whether payloads of a delegate may contain unsupported operators.
pub(crate) fn may_be_unsupported(id: &str) -> bool {
    delegates::may_miss(id)
}

/// Returns the unsupported operators of the first delegate payload that has any, with the reason.
///
/// Returns `None` for a file that cannot be read.
pub(crate) fn unsupported_in_payloads(
    model: &Path,
    method: &str,
) -> Option<(BTreeSet<String>, String)> {
    let source = FileSource::open(model).ok()?;
    let body = ProgramBody::read(&source).ok()?;
    let weights = ProgramWeights::open(model, body.named).ok()?;
    let method = body
        .methods
        .into_iter()
        .find(|found| found.name == method)?;
    delegates::first_unsupported(&method.delegates, &weights)
        .unwrap_or_else(|failure| Some((BTreeSet::new(), failure.reason)))
}

/// Returns the backend of a delegate if its half-precision graphs are computed differently from its
/// hardware.
pub(crate) fn inexact_backend(id: &str) -> Option<Backend> {
    delegates::reading(id)
}

/// Explains why these names cannot be lowered, and names the runtime that supports them.
pub(crate) fn unsupported_reason(missing: &BTreeSet<String>) -> String {
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
