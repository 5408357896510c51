//! Finds sizes for dynamic dimensions if the model does not accept the default size 1.
//!
//! Sizes suggested by the model's graph are tried first, then common ones, until the model runs.
//!
//! Invariant: sizes given by the user are kept. A chosen size and its reason are reported. If the
//! model fails for another reason, the original error is reported.

use std::time::{Duration, Instant};

use super::target_args::{MAKING_INPUTS, TargetArgs, Which};
use crate::cli::exit::Failure;
use crate::cli::output;
use crate::engine::EngineError;
use crate::runtime::selection::Selection;
use crate::runtime::target::{self, StartError};
use crate::runtime::worker::Launcher;
use crate::tensor::input::{self, InputArgs, OpenDim, TrialSize};

/// Time after which no further size is tried.
const PATIENCE: Duration = Duration::from_secs(30);

/// The model that trials run.
pub(super) struct Model<'a> {
    /// Limits, backend, threads.
    pub(super) target: &'a TargetArgs,
    /// Backend and engine, if the user named them.
    pub(super) which: Which<'a>,
    /// The selected method of a model.
    pub(super) selection: &'a Selection,
}

/// The outcome of the trials.
enum Found {
    /// The model ran with these sizes.
    Sizes(Vec<TrialSize>),
    /// The model ran with none of these sizes.
    Nothing(Vec<u64>),
}

/// Runs something with the given inputs. If that fails because of dynamic dimensions without a
/// given size, runs it again with sizes that the model accepts.
pub(super) fn with_sizes<T>(
    model: &Model<'_>,
    given: &InputArgs,
    mut run: impl FnMut(&InputArgs) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failure = match run(given) {
        Err(Failure::Other(failure)) => failure,
        other => return other,
    };
    let open = input::open_dims(&model.selection.signature, given).unwrap_or_default();
    let open: Vec<OpenDim> = open.into_iter().filter(|dim| dim.bound.is_none()).collect();
    if open.is_empty() {
        return Err(Failure::Other(failure));
    }
    let Some(found) = search(model, given, &open) else {
        return Err(Failure::Other(failure));
    };
    match found {
        Found::Sizes(choices) => {
            output::note(&taken(&choices));
            run(&with_choices(given, &choices))
        }
        Found::Nothing(tried) => Err(Failure::Other(format!(
            "{failure}; {}",
            advice(&open, &tried)
        ))),
    }
}

/// Tries sizes. Returns `None` if the model failed for another reason.
fn search(model: &Model<'_>, given: &InputArgs, open: &[OpenDim]) -> Option<Found> {
    let launcher = model.target.launcher().ok()?;
    // Repeat the run without changes, to find out how it failed.
    if !matches!(try_out(model, given, &[], &launcher), Outcome::SizesMayHelp) {
        return None;
    }
    let selection = model.selection;
    let trials = input::trial_sizes(&selection.model, &selection.signature, open);
    let start = Instant::now();
    let mut tried = Vec::new();
    for choices in trials {
        if start.elapsed() > PATIENCE {
            break;
        }
        for choice in choices.iter().filter(|choice| choice.size != 1) {
            if !tried.contains(&choice.size) {
                tried.push(choice.size);
            }
        }
        if matches!(try_out(model, given, &choices, &launcher), Outcome::Runs) {
            return Some(Found::Sizes(choices));
        }
    }
    Some(Found::Nothing(tried))
}

enum Outcome {
    Runs,
    SizesMayHelp,
    Hopeless,
}

fn try_out(
    model: &Model<'_>,
    given: &InputArgs,
    choices: &[TrialSize],
    launcher: &Launcher,
) -> Outcome {
    let given = with_choices(given, choices);
    let signature = &model.selection.signature;
    let inputs = model
        .target
        .within(MAKING_INPUTS, || input::assemble(signature, &given));
    let Ok(inputs) = inputs else {
        return Outcome::Hopeless;
    };
    let wish = model.target.wish(model.selection, model.which);
    match target::start(&wish, &inputs, launcher) {
        Ok(_) => Outcome::Runs,
        Err(StartError::Failed(tried)) => {
            // Engines load a model without knowing the sizes of its inputs.
            let failed = |error: &EngineError| matches!(error, EngineError::Run { .. });
            if tried.iter().any(|(_, error)| failed(error)) {
                Outcome::SizesMayHelp
            } else {
                Outcome::Hopeless
            }
        }
        Err(_) => Outcome::Hopeless,
    }
}

fn with_choices(given: &InputArgs, choices: &[TrialSize]) -> InputArgs {
    let mut given = given.clone();
    let dims = choices.iter();
    given
        .dims
        .extend(dims.map(|choice| format!("{}={}", choice.label, choice.size)));
    given
}

fn taken(choices: &[TrialSize]) -> String {
    let other = choices.iter().filter(|choice| choice.size != 1);
    let texts = other.map(|choice| match &choice.why {
        Some(why) => format!("`{}` = {} ({why})", choice.label, choice.size),
        None => format!("`{}` = {}", choice.label, choice.size),
    });
    let texts: Vec<String> = texts.collect();
    format!(
        "dynamic dimensions default to 1, which this model does not accept; it runs with {}; set other \
         sizes with `--dim NAME=SIZE`",
        texts.join(", ")
    )
}

fn advice(open: &[OpenDim], tried: &[u64]) -> String {
    let options: Vec<String> = open
        .iter()
        .map(|dim| format!("--dim {}=SIZE", dim.label))
        .collect();
    let tried: Vec<String> = tried.iter().map(u64::to_string).collect();
    let also = match tried.join(", ") {
        none if none.is_empty() => String::new(),
        sizes => format!(", or with {sizes}"),
    };
    format!(
        "the model does not run with dynamic dimensions of size 1{also}: set their sizes with {}",
        options.join(" ")
    )
}
