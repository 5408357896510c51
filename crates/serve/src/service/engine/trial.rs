//! The trial of a model: runs on small valid inputs that show whether the model works at all.
//!
//! Invariant: a model counts as broken only if every trial run failed, none of them because of
//! input values or a time limit. The number and duration of runs are bounded.

use std::iter::once;
use std::time::{Duration, Instant};

use super::model::EndpointModel;
use pkgtool_engine::EngineError;
use pkgtool_engine::tensor::input::{
    Generator, InputArgs, OpenDim, assemble, open_dims, trial_sizes,
};
use pkgtool_engine::tensor::limit::RunLimit;
use pkgtool_engine::tensor::{Signature, Tensor};

/// Time after which no further input is tried.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Result of a trial.
#[derive(Debug)]
pub(super) enum TrialResult {
    /// The model works.
    Runs,
    /// It failed with every input; contains the first failure.
    Fails(EngineError),
    /// Inputs could not be generated, or the failures do not prove that the model is broken.
    Unknown,
}

/// Tries inputs, most likely ones first, until the model runs.
pub(super) fn of(
    model: &EndpointModel,
    mut run: impl FnMut(&[Tensor]) -> Result<(), EngineError>,
) -> TrialResult {
    let began = Instant::now();
    let mut first = None;
    let mut is_conclusive = true;
    for inputs in inputs(model) {
        if first.is_some() && began.elapsed() > TIME_LIMIT {
            break;
        }
        let Err(error) = run(&inputs) else {
            return TrialResult::Runs;
        };
        let by_time = matches!(
            error,
            EngineError::Limit {
                limit: RunLimit::Time(_),
                ..
            }
        );
        is_conclusive &= !by_time && !matches!(error, EngineError::Input { .. });
        let is_over = matches!(error, EngineError::Died { .. } | EngineError::Limit { .. });
        first.get_or_insert(error);
        if is_over {
            break;
        }
    }
    match first {
        Some(error) if is_conclusive => TrialResult::Fails(error),
        _ => TrialResult::Unknown,
    }
}

/// Generates small valid inputs of a model. Its graph is read only if the usual sizes fail.
fn inputs(model: &EndpointModel) -> Box<dyn Iterator<Item = Vec<Tensor>> + '_> {
    if !model.first.is_empty() {
        return Box::new(once(model.first.clone()));
    }
    let signature = model.carrying.visible(&model.signature);
    let open = open_dims(&signature, &InputArgs::default()).unwrap_or_default();
    let smallest = once(sizes(open.iter().map(|dim| (dim.label.as_str(), 1))));
    let (path, more) = (&model.model, signature.clone());
    // Sizes of bounded dimensions default to the bound.
    let unbounded = |dims: &[OpenDim]| -> Vec<OpenDim> {
        let dims = dims.iter().filter(|dim| dim.bound.is_none());
        dims.cloned().collect()
    };
    let proposed = once(unbounded(&open)).flat_map(move |open| {
        let proposed = trial_sizes(path, &more, &open).into_iter();
        proposed.map(|trial| sizes(trial.iter().map(|it| (it.label.as_str(), it.size))))
    });
    let zeros = smallest
        .chain(once(Vec::new()))
        .chain(proposed)
        .map(|dims| (dims, Generator::Zeros));
    // An input may contain a size, which cannot be zero.
    let ones = once((Vec::new(), Generator::Ones));
    let all = zeros.chain(ones);
    Box::new(all.filter_map(move |(dims, values)| filled(&signature, dims, values)))
}

fn sizes<'s>(sizes: impl Iterator<Item = (&'s str, u64)>) -> Vec<String> {
    sizes
        .map(|(label, size)| format!("{label}={size}"))
        .collect()
}

/// Generates inputs of these sizes; `None` if the signature does not allow them.
pub(super) fn filled(
    signature: &Signature,
    dims: Vec<String>,
    values: Generator,
) -> Option<Vec<Tensor>> {
    let args = InputArgs {
        default: Some(values),
        dims,
        ..InputArgs::default()
    };
    assemble(signature, &args).ok()
}
