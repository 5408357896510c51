//! Sizes for open dimensions where the usual one, 1, is none that the model takes: those that its graph
//! suggests, then common ones, until the model has run.
//!
//! Invariant: sizes that the user gave are kept; what was taken instead of 1, and why, is told. A model
//! that fails for any other reason fails as it did.

use std::time::{Duration, Instant};

use super::target_args::{MAKING_INPUTS, TargetArgs, Which};
use crate::cli::exit::Failure;
use crate::cli::output;
use crate::engine::EngineError;
use crate::runtime::selection::Selection;
use crate::runtime::target::{self, StartError};
use crate::runtime::worker::Launcher;
use crate::tensor::input::{self, InputArgs, OpenDim, TrialSize};

/// No further size is tried after this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is to be run, for trials.
pub(super) struct Model<'a> {
    /// Limits, backend, threads.
    pub(super) target: &'a TargetArgs,
    /// Backend and engine, if the user named them.
    pub(super) which: Which<'a>,
    /// The method of a model.
    pub(super) selection: &'a Selection,
}

/// What trials found.
enum Found {
    /// The model ran with these sizes.
    Sizes(Vec<TrialSize>),
    /// It did not, with any of these.
    Nothing(Vec<u64>),
}

/// Runs something with the inputs that were given and, where it fails because of open dimensions that
/// nobody gave a size, with sizes that the model takes.
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

/// Tries sizes; nothing if sizes are not what the model failed for.
fn search(model: &Model<'_>, given: &InputArgs, open: &[OpenDim]) -> Option<Found> {
    let launcher = model.target.launcher().ok()?;
    // Once more as it was: only now it is known how it failed.
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
        "open dimensions are 1 where nobody says their size, which this model does not take; it runs \
         with {}; `--dim NAME=SIZE` sets others",
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
        sizes => format!(", nor with {sizes}"),
    };
    format!(
        "its open dimensions were 1, and it does not run so{also}: give their sizes with {}",
        options.join(" ")
    )
}
