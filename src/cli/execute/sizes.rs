//! Finds sizes for dynamic dimensions if the model does not accept the default size 1.
//!
//! Sizes suggested by the model's graph are tried first, then common ones, until the model runs.
//!
//! Invariant: sizes given by the user are kept. A chosen size and its reason are reported. If the
//! model fails for another reason, the original error is reported.

use std::time::{Duration, Instant};

use super::target_args::{GENERATING_INPUTS, TargetArgs, VariantChoice};
use crate::cli::exit::Failure;
use crate::cli::output;
use pkgtool_engine::EngineError;
use pkgtool_engine::runtime::selection::Selection;
use pkgtool_engine::runtime::target::{self, StartError};
use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::input::{self, InputArgs, OpenDim, TrialSize};

/// Time after which no further size is tried.
const SEARCH_TIME: Duration = Duration::from_secs(30);

/// The model that trials run.
pub(super) struct TrialModel<'a> {
    /// Limits, backend, threads.
    pub(super) target: &'a TargetArgs,
    /// Backend and engine, if the user named them.
    pub(super) which: VariantChoice<'a>,
    /// The selected method of a model.
    pub(super) selection: &'a Selection,
}

/// The outcome of the trials.
enum SizeTrials {
    /// The model ran with these sizes.
    Sizes(Vec<TrialSize>),
    /// The model ran with none of these sizes.
    Nothing(Vec<u64>),
}

/// Runs something with the given inputs. If that fails because of dynamic dimensions without a
/// given size, runs it again with sizes that the model accepts.
pub(super) fn with_sizes<T>(
    model: &TrialModel<'_>,
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
        SizeTrials::Sizes(choices) => {
            output::note(&describe_chosen_sizes(&choices));
            run(&with_choices(given, &choices))
        }
        SizeTrials::Nothing(tried) => Err(Failure::Other(format!(
            "{failure}; {}",
            advice(&open, &tried)
        ))),
    }
}

/// Tries sizes. Returns `None` if the model failed for another reason.
fn search(model: &TrialModel<'_>, given: &InputArgs, open: &[OpenDim]) -> Option<SizeTrials> {
    let launcher = model.target.launcher().ok()?;
    // Repeat the run without changes, to find out how it failed.
    if !matches!(
        try_sizes(model, given, &[], &launcher),
        TrialOutcome::SizesMayHelp
    ) {
        return None;
    }
    let selection = model.selection;
    let trials = input::trial_sizes(&selection.model, &selection.signature, open);
    let start = Instant::now();
    let mut tried = Vec::new();
    for choices in trials {
        if start.elapsed() > SEARCH_TIME {
            break;
        }
        for choice in choices.iter().filter(|choice| choice.size != 1) {
            if !tried.contains(&choice.size) {
                tried.push(choice.size);
            }
        }
        if matches!(
            try_sizes(model, given, &choices, &launcher),
            TrialOutcome::Runs
        ) {
            return Some(SizeTrials::Sizes(choices));
        }
    }
    Some(SizeTrials::Nothing(tried))
}

enum TrialOutcome {
    Runs,
    SizesMayHelp,
    Hopeless,
}

fn try_sizes(
    model: &TrialModel<'_>,
    given: &InputArgs,
    choices: &[TrialSize],
    launcher: &Launcher,
) -> TrialOutcome {
    let given = with_choices(given, choices);
    let signature = &model.selection.signature;
    let inputs = model
        .target
        .within(GENERATING_INPUTS, || input::assemble(signature, &given));
    let Ok(inputs) = inputs else {
        return TrialOutcome::Hopeless;
    };
    let wish = model.target.start_request(model.selection, model.which);
    match target::start(&wish, &inputs, launcher) {
        Ok(_) => TrialOutcome::Runs,
        Err(StartError::Failed(tried)) => {
            // Engines load a model without knowing the sizes of its inputs.
            let failed = |error: &EngineError| matches!(error, EngineError::Run { .. });
            if tried.iter().any(|(_, error)| failed(error)) {
                TrialOutcome::SizesMayHelp
            } else {
                TrialOutcome::Hopeless
            }
        }
        Err(_) => TrialOutcome::Hopeless,
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

fn describe_chosen_sizes(choices: &[TrialSize]) -> String {
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
