//! Standalone Core ML models: a method that consists of one call of the model's function.
//!
//! The call is lowered like a delegate's call (`coreml`). Its inputs and outputs are those of the
//! model's description, as in the signature. Invariant: only ML Programs are lowered; other kinds
//! of model are rejected with their kind.

use std::collections::BTreeSet;

use super::delegates::CORE_ML;
use crate::frontends::coreml;
use crate::graph::calling::tensor_body;
use crate::graph::guard::LibraryFailure;
use crate::graph::weights::ProgramWeights;
use crate::graph::{failed, unsupported};
use crate::{EngineError, LoadRequest};
use pkgtool_model::ModelInfo;
use pkgtool_model::coreml::StandaloneProgram;
use pkgtool_model::executorch::body::{
    BodyValue, ByteRange, DelegateBody, Instruction, MethodBody,
};

/// Returns the unsupported operations of a model's method, the reason, and the runtime that
/// supports them.
pub(crate) fn missing<'a>(
    operators: impl Iterator<Item = &'a str>,
) -> Option<(BTreeSet<String>, String)> {
    let missing: BTreeSet<String> = operators
        .filter(|name| !coreml::is_supported(name))
        .map(str::to_owned)
        .collect();
    let first = missing.first()?;
    let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    let names = names.join(", ");
    let reason = if let Some((kind, part)) = first.split_once("::") {
        // A model made of layers or of other models has no operations.
        let kind = if kind == "model" { part } else { kind };
        format!(
            "a Core ML model of kind {kind} ({names}) is not an ML Program; Core ML runs it, on Apple's systems"
        )
    } else {
        format!(
            "Core ML operations not implemented: {names}; Core ML runs them, on Apple's systems"
        )
    };
    Some((missing, reason))
}

/// Reads a model whose header is known. Returns a method that calls its function, and the weights.
pub(crate) fn read(
    request: &LoadRequest,
    info: &ModelInfo,
) -> Result<(MethodBody, ProgramWeights), EngineError> {
    let signature = &request.signature;
    let found = if info.names_methods {
        info.method(&signature.method)
    } else {
        info.methods.first()
    };
    let operators = found.iter().flat_map(|method| method.operators.keys());
    if let Some((missing, reason)) = missing(operators.map(String::as_str)) {
        return Err(unsupported(missing, &reason));
    }
    let whole = StandaloneProgram::read(&request.model, &signature.method).map_err(|error| {
        if error.is_unsupported() {
            unsupported(BTreeSet::new(), &format!("it is {error}"))
        } else {
            failed(&LibraryFailure::new(error.to_string()))
        }
    })?;
    let StandaloneProgram { package, weights } = whole;
    let counts = (package.inputs.len(), package.outputs.len());
    if counts != (signature.inputs.len(), signature.outputs.len()) {
        let reason = "the inputs and outputs in the model's description have changed";
        return Err(failed(&LibraryFailure::new(reason)));
    }
    let weights =
        ProgramWeights::of_package(&weights, package).map_err(|failure| failed(&failure))?;
    let values = signature.inputs.iter().chain(&signature.outputs);
    // Inputs bring their sizes with each run; the sizes of outputs follow from them.
    let values: Vec<BodyValue> = values.map(|spec| tensor_body(spec.dtype)).collect();
    let args: Vec<usize> = (0..values.len()).collect();
    let (inputs, outputs) = args.split_at(counts.0);
    let method = MethodBody {
        name: signature.method.clone(),
        inputs: inputs.to_vec(),
        outputs: outputs.to_vec(),
        delegates: vec![DelegateBody {
            id: CORE_ML.to_owned(),
            // The payload is unused: the package is already loaded.
            payload: Some(ByteRange { offset: 0, size: 0 }),
        }],
        instructions: vec![Instruction::Delegate { delegate: 0, args }],
        values,
        ..MethodBody::default()
    };
    Ok((method, weights))
}
