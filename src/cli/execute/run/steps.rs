//! `pkgtool run --steps`: runs a model several times in one session. The program's state persists,
//! and outputs can feed inputs of the next step.
//!
//! Each step is rendered right after its run, so that only the outputs of the last step are in
//! memory.

use serde_json::Value as Json;

use super::super::target_args::GENERATING_INPUTS;
use super::{CompletedRun, RunArgs, RunView, describe_not_finite, json, text};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use pkgtool_engine::tensor::input::{RunSteps, StepArgs};
use pkgtool_engine::tensor::{Tensor, write_outputs};
use pkgtool_engine::{RunAnswer, Session};

/// The rendered steps so far.
#[derive(Default)]
struct RenderedSteps {
    texts: Vec<String>,
    documents: Vec<Json>,
    /// Message about the first output that is not finite.
    fault: Option<String>,
}

/// Runs all steps.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let fail = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let which = args.variant.which();
    let selection = super::super::select_method(&args.target, &args.path, which)?;
    let signature = selection.signature.clone();
    let wanted = StepArgs {
        count: args.steps,
        values: args.step_inputs.clone(),
        feeds: args.feeds.clone(),
    };
    let given = args.target.limit_memory(args.inputs.to_args());
    let steps = args.target.within(GENERATING_INPUTS, || {
        RunSteps::of(&signature, &given, &wanted)
    });
    let steps = steps.map_err(|error| fail(&error))?;
    let first = args
        .target
        .within(GENERATING_INPUTS, || steps.inputs(0, None))
        .map_err(|error| fail(&error))?;
    let wish = args.target.start_request(&selection, which);
    let started = super::super::start_with_notes(&wish, &first, &args.target.launcher()?)?;
    let mut stage = CompletedRun {
        selection,
        started,
        inputs: first,
        second_run_time: None,
        profile: None,
        files: Vec::new(),
    };
    let mut rendered = RenderedSteps::default();
    let mut answer = stage.started.first_answer.clone();
    rendered.add(args, &stage, &stage.inputs, &answer)?;
    for step in 1..steps.count() {
        let at = |error: &dyn std::fmt::Display| {
            let model = stage.selection.model.display();
            Failure::Other(format!("{model}, step {}: {error}", step + 1))
        };
        let inputs = args.target.within(GENERATING_INPUTS, || {
            steps.inputs(step, Some(&answer.outputs))
        });
        let inputs = inputs.map_err(|error| at(&error))?;
        let ran = stage.started.worker.run(&inputs);
        answer = ran.map_err(|error| at(&error))?;
        rendered.add(args, &stage, &inputs, &answer)?;
    }
    let feeds = steps.feeds().iter();
    let feeds: Vec<(String, String)> = feeds
        .map(|feed| {
            let output = signature.outputs[feed.output].name.clone();
            (output, signature.inputs[feed.input].name.clone())
        })
        .collect();
    output::print(&if args.json {
        json::render_steps(&stage, &feeds, rendered.documents)
    } else {
        text::render_steps(&stage, &feeds, &rendered.texts)
    })?;
    match rendered.fault {
        Some(fault) if args.check_finite => Err(Failure::Other(fault)),
        _ => Ok(Exit::Clean),
    }
}

impl RenderedSteps {
    /// Adds a step, and writes its outputs to files if requested.
    fn add(
        &mut self,
        args: &RunArgs,
        stage: &CompletedRun,
        inputs: &[Tensor],
        answer: &RunAnswer,
    ) -> Result<(), Failure> {
        let number = self.texts.len().max(self.documents.len()) + 1;
        let signature = &stage.selection.signature;
        let files = match &args.output_dir {
            Some(directory) => {
                let folder = directory.join(format!("step-{number}"));
                let files = write_outputs(&folder, &signature.outputs, &answer.outputs);
                files.map_err(|error| Failure::Other(error.to_string()))?
            }
            None => Vec::new(),
        };
        let shown = RunView {
            signature,
            inputs,
            outputs: &answer.outputs,
            files: &files,
            time: answer.time,
        };
        if args.json {
            self.documents.push(json::step(&shown));
        } else {
            self.texts.push(text::step(number, &shown));
        }
        if args.check_finite && self.fault.is_none() {
            let fault = describe_not_finite(&signature.outputs, &answer.outputs);
            let model = stage.selection.model.display();
            self.fault = fault.map(|fault| format!("{model}, step {number}: {fault}"));
        }
        Ok(())
    }
}
