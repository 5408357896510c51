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
use crate::tensor::input::{self, Evidence, InputArgs, OpenDim, Suggestion};

/// Common sizes, most likely first.
const LADDER: [u64; 9] = [32, 64, 224, 16, 512, 8, 4, 128, 2];
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

/// The size of a dimension in a trial.
struct Choice {
    label: String,
    size: u64,
    why: Option<String>,
}

/// What trials found.
enum Found {
    /// The model ran with these sizes.
    Sizes(Vec<Choice>),
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
    let evidence = input::evidence(&model.selection.model, &model.selection.signature);
    let leading = leading(model, open);
    let start = Instant::now();
    let mut tried = Vec::new();
    for choices in trials(open, &evidence, &leading) {
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
    choices: &[Choice],
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

fn with_choices(given: &InputArgs, choices: &[Choice]) -> InputArgs {
    let mut given = given.clone();
    let dims = choices.iter();
    given
        .dims
        .extend(dims.map(|choice| format!("{}={}", choice.label, choice.size)));
    given
}

/// The open dimensions that come first in an input of several: batches, most likely.
fn leading(model: &Model<'_>, open: &[OpenDim]) -> Vec<bool> {
    let axes = input::axes(&model.selection.signature);
    let comes_first = |dim: &OpenDim| {
        let mut inputs = axes.iter().flatten();
        inputs.any(|axes| axes.len() > 1 && axes[0] == input::Axis::Open(dim.label.clone()))
    };
    open.iter().map(comes_first).collect()
}

/// Sizes for all open dimensions, likeliest first.
fn trials(open: &[OpenDim], evidence: &Evidence, leading: &[bool]) -> Vec<Vec<Choice>> {
    let mut trials: Vec<Vec<Choice>> = Vec::new();
    let rounds = std::iter::once(None).chain(LADDER.map(Some));
    for common in rounds {
        let choices = open.iter().zip(leading).map(|(dim, leading)| {
            let (size, why) = size_of(dim, evidence, common.filter(|_| !leading));
            Choice {
                label: dim.label.clone(),
                size,
                why,
            }
        });
        trials.push(choices.collect());
    }
    // Last of all, a first dimension that is no batch.
    let all = open.iter().map(|dim| {
        let (size, why) = size_of(dim, evidence, Some(LADDER[0]));
        Choice {
            label: dim.label.clone(),
            size,
            why,
        }
    });
    trials.push(all.collect());
    let sizes = |trial: &[Choice]| trial.iter().map(|choice| choice.size).collect::<Vec<_>>();
    let mut seen = vec![vec![1; open.len()]];
    trials.retain(|trial| {
        let sizes = sizes(trial);
        let is_new = !seen.contains(&sizes);
        seen.push(sizes);
        is_new
    });
    trials
}

/// What the graph suggests for a dimension, else a common size that its strides divide.
fn size_of(dim: &OpenDim, evidence: &Evidence, common: Option<u64>) -> (u64, Option<String>) {
    let told = |found: &Suggestion| Some(found.why.clone());
    if let Some(exact) = evidence.exact.get(&dim.label) {
        return (exact.size, told(exact));
    }
    let divisor = evidence.divisor.get(&dim.label);
    match (divisor, common) {
        (Some(divisor), common) => {
            let size = common.unwrap_or(1).next_multiple_of(divisor.size.max(1));
            (size, told(divisor))
        }
        (None, common) => (common.unwrap_or(1), None),
    }
}

fn taken(choices: &[Choice]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn open(label: &str) -> OpenDim {
        OpenDim {
            label: label.to_owned(),
            bound: None,
            allowed: Vec::new(),
        }
    }

    #[test]
    fn what_the_graph_says_comes_first() {
        let mut evidence = Evidence::default();
        let suggestion = |size, why: &str| Suggestion {
            size,
            why: why.to_owned(),
        };
        let labels = ["batch", "features", "height", "length"];
        evidence
            .exact
            .insert("features".to_owned(), suggestion(6, "six rows"));
        evidence
            .divisor
            .insert("height".to_owned(), suggestion(48, "strides"));
        let open = labels.map(open);
        let trials = trials(&open, &evidence, &[true, false, false, false]);
        let sizes: Vec<Vec<u64>> = trials
            .iter()
            .map(|trial| trial.iter().map(|choice| choice.size).collect())
            .collect();
        assert_eq!(sizes[0], [1, 6, 48, 1]);
        assert_eq!(sizes[1], [1, 6, 48, 32]);
        assert_eq!(sizes[2], [1, 6, 96, 64]);
        assert_eq!(sizes.last().map(Vec::as_slice), Some(&[32, 6, 48, 32][..]));
        assert!(taken(&trials[0]).contains("`features` = 6 (six rows), `height` = 48 (strides)"));
    }
}
