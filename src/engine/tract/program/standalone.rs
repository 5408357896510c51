//! Core ML models that stand by themselves: a method that is one call of their function.
//!
//! The call is lowered as a delegate's is (`coreml`): what goes in and comes out is the description's, as the
//! signature has it. Invariant: only ML Programs come here; anything else is refused by what it is.

use std::collections::BTreeSet;

use super::super::guard::Failure;
use super::super::{failed, unsupported};
use super::calling::body_of;
use super::coreml;
use super::delegates::CORE_ML;
use super::weights::Weights;
use crate::engine::{EngineError, LoadRequest};
use crate::model::ModelInfo;
use crate::model::coreml::{Error, Whole};
use crate::model::executorch::body::{BodyValue, ByteRange, DelegateBody, Instruction, MethodBody};

/// What of a model's method cannot be lowered, by the names of its operations; why, and what would run it.
pub(in super::super) fn missing<'a>(
    operators: impl Iterator<Item = &'a str>,
) -> Option<(BTreeSet<String>, String)> {
    let missing: BTreeSet<String> = operators
        .filter(|name| !coreml::is_known(name))
        .map(str::to_owned)
        .collect();
    let first = missing.first()?;
    let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    let names = names.join(", ");
    let reason = if let Some((kind, part)) = first.split_once("::") {
        // Made of layers or of models: nothing of it is an operation.
        let kind = if kind == "model" { part } else { kind };
        format!(
            "it is a Core ML model of kind {kind} ({names}), no ML Program; Core ML runs it, on Apple's systems"
        )
    } else {
        format!("there is no code for Core ML's {names}; Core ML runs it, on Apple's systems")
    };
    Some((missing, reason))
}

/// Reads a model, whose header is known: a method that calls its function, and where its weights are.
pub(super) fn read(
    request: &LoadRequest,
    info: &ModelInfo,
) -> Result<(MethodBody, Weights), EngineError> {
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
    let whole = Whole::read(&request.model, &signature.method).map_err(|error| match error {
        Error::NoProgram { .. } | Error::SeveralFiles { .. } => {
            unsupported(BTreeSet::new(), &format!("it is {error}"))
        }
        other => failed(&Failure::new(other.to_string())),
    })?;
    let Whole { package, weights } = whole;
    let counts = (package.inputs.len(), package.outputs.len());
    if counts != (signature.inputs.len(), signature.outputs.len()) {
        let reason = "its description has other inputs and outputs than it had before";
        return Err(failed(&Failure::new(reason)));
    }
    let weights = Weights::of_package(&weights, package).map_err(|failure| failed(&failure))?;
    let values = signature.inputs.iter().chain(&signature.outputs);
    // Inputs bring their sizes with each run, and outputs follow.
    let values: Vec<BodyValue> = values.map(|spec| body_of(spec.dtype)).collect();
    let args: Vec<usize> = (0..values.len()).collect();
    let (inputs, outputs) = args.split_at(counts.0);
    let method = MethodBody {
        name: signature.method.clone(),
        inputs: inputs.to_vec(),
        outputs: outputs.to_vec(),
        operators: Vec::new(),
        delegates: vec![DelegateBody {
            id: CORE_ML.to_owned(),
            // The package is at hand; it is in no payload.
            payload: Some(ByteRange { offset: 0, size: 0 }),
        }],
        instructions: vec![Instruction::Delegate { delegate: 0, args }],
        values,
    };
    Ok((method, weights))
}
