//! `pkgtool run`.

mod answer;
mod bundled;
mod chain;
mod json;
mod steps;
mod text;
mod texts;

use std::path::PathBuf;
use std::time::Duration;

use super::super::exit::{Exit, Failure};
use super::super::output;
use super::input_args::InputOptions;
use super::profile::{ProfileArgs, RecordedProfile};
use super::target_args::{TargetArgs, VariantArgs};
use pkgtool_base::diagnostic::book;
use pkgtool_engine::runtime::selection::Selection;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::input::{FEED_HELP, MAX_STEPS, STEP_INPUT_HELP};
use pkgtool_engine::tensor::{Signature, Tensor, TensorSpec, input, write_outputs};
use pkgtool_engine::{PortableReading, Session};

/// Arguments of `pkgtool run`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "run"))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(in super::super) struct RunArgs {
    /// Directory of a package, a config, or a model file
    #[arg(value_name = "PACKAGE|CONFIG|MODEL")]
    path: PathBuf,

    #[command(flatten)]
    answer: answer::AnswerArgs,

    #[command(flatten)]
    variant: VariantArgs,

    /// Run these components, or these methods of one program, in sequence. Outputs feed inputs by
    /// name, then by position
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    chain: Vec<String>,

    /// Run N times in one session, which keeps the program's state (a cache, a counter), and show
    /// each run
    #[arg(long, value_name = "N", help_heading = "Steps", conflicts_with_all = ["chain", "once"],
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_STEPS)))]
    steps: Option<u32>,

    #[arg(long = "step-input", value_name = "[NAME|INDEX=]VALUE", help = STEP_INPUT_HELP,
        help_heading = "Steps", conflicts_with_all = ["chain", "once"])]
    step_inputs: Vec<String>,

    #[arg(long = "feed", value_name = "OUTPUT=INPUT", help = FEED_HELP,
        help_heading = "Steps", conflicts_with_all = ["chain", "once"])]
    feeds: Vec<String>,

    /// Write each output to DIR/NAME.npy (bfloat16 as its raw 16 bits)
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Fail if an output holds NaN or infinity
    #[arg(long)]
    check_finite: bool,

    /// Run only once. By default, a second run is timed
    #[arg(long)]
    once: bool,

    /// Run the test cases in a bundled program (.bpte) and compare the outputs with the expected
    /// ones. Exits with code 1 if they differ
    #[arg(long, conflicts_with_all = ["inputs", "dims", "chain", "precision", "output_dir", "once", "check_finite", "steps", "step_inputs", "feeds"])]
    bundled: bool,

    #[command(flatten)]
    profile: ProfileArgs,

    #[command(flatten)]
    pub(super) target: TargetArgs,

    #[command(flatten)]
    inputs: InputOptions,

    #[command(flatten)]
    texts: texts::TextArgs,
}

const EXAMPLES: &str = "\
Examples:
  pkgtool run glimpse/ photo.jpg
  pkgtool run spotter/ photo.jpg --set threshold=0.7 --save boxes.png
  pkgtool run glimpse/ --input photo.jpg --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
  pkgtool run hush/xnnpack/config.json --precision fp32 --input tokens=ids.npy --input mask=ones
  pkgtool run hush/ --text \"a red house\" --text \"a blue house\"
  pkgtool run model.onnx --input random:7 --dim batch=4 --json
  pkgtool run decoder.pte --step-input tokens=[[[5]],[[8]],[[13]]] --step-input pos=[[0],[1],[2]]
  pkgtool run decoder.onnx --steps 4 --input input_ids=[[7]] --input attention_mask=ones";

/// One model file that was run.
struct CompletedRun {
    selection: Selection,
    started: Started,
    inputs: Vec<Tensor>,
    /// Duration of the second run.
    second_run_time: Option<Duration>,
    /// Recorded runs, if asked for.
    profile: Option<RecordedProfile>,
    /// Files with the outputs, in their order; empty if outputs were not written.
    files: Vec<PathBuf>,
}

/// The data of one run for display.
struct RunView<'a> {
    signature: &'a Signature,
    inputs: &'a [Tensor],
    outputs: &'a [Tensor],
    files: &'a [PathBuf],
    time: Duration,
}

/// Runs the command.
pub(in super::super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let is_answer = args.bundled || args.answer.given.is_some() || !args.texts.texts.is_empty();
    let in_steps = args.steps.is_some() || !args.step_inputs.is_empty() || !args.feeds.is_empty();
    if args.profile.is_on() && (is_answer || in_steps) {
        let reason = "--profile records single runs on tensors: give the inputs with --input";
        return Err(Failure::Other(reason.to_owned()));
    }
    if args.bundled {
        return bundled::run(args);
    }
    let texts = &args.texts.texts;
    let is_given = args.answer.given.is_some() || !texts.is_empty();
    if is_given && let Some(models) = answer::labels::models(args)? {
        let given = args.answer.given.iter().map(|it| it.display().to_string());
        let given: Vec<String> = given.chain(texts.iter().cloned()).collect();
        return answer::labels::run(args, &models, &given);
    }
    if let Some(given) = &args.answer.given {
        return match texts::meant(args, given) {
            Some(text) => texts::run(args, &[text]),
            None => answer::run(args),
        };
    }
    if !texts.is_empty() {
        return texts::run(args, texts);
    }
    if in_steps {
        return steps::run(args);
    }
    let mut stages = chain::run(args)?;
    let recorded = stages.iter().filter_map(|stage| stage.profile.as_ref());
    args.profile.write_trace(recorded)?;
    if let Some(directory) = &args.output_dir {
        for stage in &mut stages {
            let folder = match stage.chain_name() {
                Some(link) if !args.chain.is_empty() => directory.join(link),
                _ => directory.clone(),
            };
            let specs = &stage.selection.signature.outputs;
            stage.files = write_outputs(&folder, specs, &stage.started.first_answer.outputs)
                .map_err(|error| Failure::Other(error.to_string()))?;
        }
    }
    let text = args.target.within("formatting the outputs", || {
        if args.json {
            json::render(&stages)
        } else {
            text::render(&stages)
        }
    });
    output::print(&text)?;
    if args.check_finite {
        check_finite(&stages)?;
    }
    Ok(Exit::Clean)
}

impl CompletedRun {
    /// Returns the data of the first run.
    fn shown(&self) -> RunView<'_> {
        RunView {
            signature: &self.selection.signature,
            inputs: &self.inputs,
            outputs: &self.started.first_answer.outputs,
            files: &self.files,
            time: self.started.first_answer.time,
        }
    }

    /// Returns the engine's own interpretation of the program, if it computes the program in place
    /// of its backend.
    fn reading(&self) -> Option<PortableReading> {
        let method = &self.selection.signature.method;
        let candidate = self.started.candidate;
        candidate.reading(&self.selection.info, method)
    }

    /// Returns its name in a chain: the component, otherwise the method. Other
    /// characters than letters, digits, `_` and `-` become `_`.
    fn chain_name(&self) -> Option<String> {
        let variant = self.selection.variant.as_ref();
        let component = variant.and_then(|variant| variant.component.clone());
        let link = component.unwrap_or_else(|| self.selection.signature.method.clone());
        let safe = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let link: String = link
            .chars()
            .map(|c| if safe(c) { c } else { '_' })
            .collect();
        Some(link).filter(|link| !link.is_empty())
    }

    /// Runs one method. The first run may fall back to another engine, and the second uses the
    /// engine of the first.
    fn run(args: &RunArgs, selection: Selection, inputs: Vec<Tensor>) -> Result<Self, Failure> {
        input::check(&selection.signature, &inputs)
            .map_err(|error| Failure::Other(error.to_string()))?;
        let wish = args.target.start_request(&selection, args.variant.which());
        let launcher = args.target.launcher()?;
        let mut started = super::start_with_notes(&wish, &inputs, &launcher)?;
        let again = if args.once {
            None
        } else {
            let answer = started.worker.run(&inputs);
            let answer = answer.map_err(|error| Failure::Other(error.to_string()))?;
            Some(answer.time)
        };
        let label = super::sides::what(&selection);
        let profile = args.profile.record(label, &started, &inputs, &launcher)?;
        Ok(Self {
            selection,
            started,
            inputs,
            second_run_time: again,
            profile,
            files: Vec::new(),
        })
    }
}

fn check_finite(stages: &[CompletedRun]) -> Result<(), Failure> {
    for stage in stages {
        let specs = &stage.selection.signature.outputs;
        if let Some(fault) = describe_not_finite(specs, &stage.started.first_answer.outputs) {
            let model = stage.selection.model.display();
            return Err(Failure::Other(format!("{model}: {fault}")));
        }
    }
    Ok(())
}

/// Describes the first output that contains NaN or infinity.
fn describe_not_finite(specs: &[TensorSpec], outputs: &[Tensor]) -> Option<String> {
    specs.iter().zip(outputs).find_map(|(spec, tensor)| {
        let bad = tensor.to_f64().filter(|value| !value.is_finite()).count();
        (bad > 0).then(|| {
            format!(
                "output `{}` has NaN or infinite values: {bad} of {}",
                spec.name,
                tensor.len()
            )
        })
    })
}
