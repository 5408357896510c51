//! `pkgtool compare`.

mod cases;
mod findings;
mod report;

use std::path::PathBuf;

use super::super::exit::{Exit, Failure};
use super::super::output;
use super::super::report_args::{self, FormatArg};
use super::input_args::InputOptions;
use super::sides::{self, GivenInput, Side, SideArgs};
use super::sizes::{Model, with_sizes};
use super::target_args::{MAKING_INPUTS, TargetArgs};
use crate::engine::{Answer, EngineError, Provider, Session};
use crate::runtime::precision::Precision;
use crate::runtime::target::Started;
use crate::tensor::Tensor;
use crate::tensor::agreement::{Comparison, Tolerances};
use crate::tensor::input::{Generator, InputArgs, InputError, Joint, matched};
use cases::{Case, Sources};
use report::{CaseResult, ComparisonReport, Judged, OutputResult, SideInfo};

/// Arguments of `pkgtool compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(in super::super) struct Args {
    /// The reference, and what is compared with it: packages, configs or model files. One path is
    /// compared with itself, in two precisions or on two engines
    #[arg(value_name = "A [B]", required = true, num_args = 1..=2)]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    sides: SideArgs,

    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten)]
    inputs: InputOptions,

    /// A directory of inputs: each .npz file, each folder with a file an input, or, for a method
    /// with one input, each file is a set
    #[arg(
        long,
        value_name = "DIR",
        help_heading = "Inputs",
        conflicts_with = "inputs"
    )]
    inputs_dir: Option<PathBuf>,

    /// How many random sets of inputs to compare on
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Inputs", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: u64,

    /// The first random seed
    #[arg(
        long,
        value_name = "SEED",
        default_value_t = 0,
        help_heading = "Inputs"
    )]
    first_seed: u64,

    /// Let what a program keeps from run to run (a cache, a counter) live on from one set of inputs to the
    /// next; without it each set is a first run
    #[arg(long)]
    keep_state: bool,

    #[command(flatten)]
    tolerances: ToleranceArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Write the findings to a file as well; may be given several times
    #[arg(long = "report", value_name = "FORMAT=FILE", value_parser = report_args::parse)]
    reports: Vec<(FormatArg, PathBuf)>,

    /// The directory that paths in SARIF, GitHub and JUnit reports are relative to. Without it the
    /// root of the checkout that a file lies in
    #[arg(long, value_name = "DIR", requires = "reports")]
    root: Option<PathBuf>,
}

/// Demands on the agreement.
#[derive(Debug, clap::Args)]
#[command(
    next_help_heading = "Tolerances (without any, those that suit the lower precision of the two)"
)]
struct ToleranceArgs {
    /// Largest absolute error
    #[arg(long, value_name = "X")]
    max_abs: Option<f64>,

    /// Largest error relative to an output's largest magnitude
    #[arg(long, value_name = "X")]
    max_rel: Option<f64>,

    /// Least cosine similarity
    #[arg(long, value_name = "X")]
    min_cosine: Option<f64>,

    /// Least signal-to-noise ratio, in decibels
    #[arg(long, value_name = "DB")]
    min_snr: Option<f64>,

    /// Least share of rows whose largest element is at the same place
    #[arg(long, value_name = "X")]
    min_top1: Option<f64>,
}

const HELP: &str = "\
Both run on the same inputs, matched by name, then by order: a size that one fixes holds for the open
dimensions of the other. Dimensions that stay open are run at their upper bound and below it (at 1 and 3
where neither states a bound). The precision is the config's; of a model file it is what the file holds.

Examples:
  pkgtool compare model/ --precision fp32,int8
  pkgtool compare model.onnx --engine ort,tract --max-rel 1e-4
  pkgtool compare old.onnx new.onnx --inputs-dir samples/ --report junit=compare.xml

Exit codes: 0 they agree, 1 they don't, 2 they could not be compared.";

/// Runs the command.
pub(in super::super) fn run(args: &Args) -> Result<Exit, Failure> {
    let sides = args.sides.sides(&args.paths, &args.target)?;
    let sides = <[Side; 2]>::try_from(sides).map_err(|sides| {
        Failure::Other(format!(
            "there must be two things to compare, and these are {}: give two paths, or one with \
             two precisions (--precision fp32,int8) or two engines (--engine ort,tract)",
            sides.len()
        ))
    })?;
    let outputs = sides
        .each_ref()
        .map(|side| &side.selection.signature.outputs);
    let places = matched(outputs[0], outputs[1]).ok_or_else(|| {
        Failure::Other(format!(
            "A has {} outputs and B has {}: they cannot be compared",
            outputs[0].len(),
            outputs[1].len()
        ))
    })?;
    let report = compared(args, &sides, &places)?;
    let [_, b] = &sides;
    let found = findings::of(&report, b);
    let rules = findings::rules();
    let paths = report_args::machine_paths(&found, args.root.as_deref());
    let style = findings::style(output::width(), &rules, &paths);
    report_args::write(&args.reports, &found, &style)?;
    // A report that goes to standard output goes there alone.
    if !report_args::take_stdout(&args.reports)? {
        output::print(&if args.json {
            report.to_json()
        } else {
            report.to_text()
        })?;
    }
    Ok(if report.agrees {
        Exit::Clean
    } else {
        Exit::Findings
    })
}

/// Compares on the sets of inputs that the arguments name, in sizes that A takes.
fn compared(
    args: &Args,
    sides: &[Side; 2],
    outputs: &[usize],
) -> Result<ComparisonReport, Failure> {
    let given = args.target.limited(args.inputs.to_args());
    let on = |given: &InputArgs| {
        let label = |place: usize, _: &Side| ["A", "B"][place].to_owned();
        let (joint, given) = sides::joint(sides, label, given)?;
        let sources = Sources {
            given: &given,
            directory: args.inputs_dir.as_deref(),
            seeds: args.first_seed..args.first_seed.saturating_add(args.seeds),
        };
        let cases = args
            .target
            .within(MAKING_INPUTS, || cases::cases(joint.signature(), &sources))?;
        let pair = Pair {
            sides,
            joint: &joint,
            outputs,
        };
        pair.compare(args, &cases)
    };
    if args.inputs_dir.is_some() {
        return on(&given);
    }
    let [a, _] = sides;
    let model = Model {
        target: &args.target,
        engine: a.engine.as_deref(),
        selection: &a.selection,
    };
    let trial = InputArgs {
        default: Some(Generator::Random { seed: 0 }),
        ..given
    };
    with_sizes(&model, &trial, on)
}

/// Two sides and what they have in common.
struct Pair<'a> {
    sides: &'a [Side; 2],
    joint: &'a Joint,
    /// For each output of A its place among B's.
    outputs: &'a [usize],
}

/// What both sides gave for one set of inputs.
type Answers = [Result<Answer, EngineError>; 2];

impl Pair<'_> {
    fn compare(&self, args: &Args, cases: &[Case]) -> Result<ComparisonReport, Failure> {
        let launcher = args.target.launcher()?;
        let [a, b] = self.sides;
        let start = |side: &Side, place: usize| {
            let wish = side.wish(&args.target);
            super::started(&wish, &self.inputs_of(place, &cases[0])?, &launcher)
        };
        let mut started = [start(a, 0)?, start(b, 1)?];
        if started[0].candidate.engine != started[1].candidate.engine {
            super::tell_wrong(&a.wish(&args.target), &started[0], true);
        }
        let (tolerances, judged) = args.tolerances.of(self.sides, &started);
        let specs = &a.selection.signature.outputs;
        let mut pooled = vec![Comparison::default(); specs.len()];
        let mut results = Vec::new();
        for (place, case) in cases.iter().enumerate() {
            let inputs = [self.inputs_of(0, case)?, self.inputs_of(1, case)?];
            let answers: Answers = if place == 0 {
                // A state has moved on by this run: another would be the second.
                started.each_ref().map(|side| Ok(side.first.clone()))
            } else {
                let [one, other] = &mut started;
                let run = |side: &mut Started, place: usize| {
                    if !args.keep_state {
                        side.worker.forget()?;
                    }
                    side.worker.run(&inputs[place])
                };
                [run(one, 0), run(other, 1)]
            };
            let mut result = self.judge(args, case, answers, &tolerances, &mut pooled)?;
            let shown = |side: usize| {
                let specs = &self.sides[side].selection.signature.inputs;
                GivenInput::list(specs, &inputs[side])
            };
            result.inputs = [shown(0), shown(1)];
            results.push(result);
        }
        let names = specs.iter().map(|spec| spec.name.clone());
        let outputs = names
            .zip(pooled.iter().map(Comparison::agreement))
            .collect();
        let mut report = ComparisonReport::new(
            SideInfo::of(a, &started[0]),
            SideInfo::of(b, &started[1]),
            tolerances,
            outputs,
            results,
        );
        report.judged = judged;
        Ok(report)
    }

    fn inputs_of(&self, side: usize, case: &Case) -> Result<Vec<Tensor>, Failure> {
        let inputs = self.joint.inputs_of(side, &case.inputs);
        inputs.map_err(|error: InputError| Failure::Other(format!("{}: {error}", case.label)))
    }

    fn judge(
        &self,
        args: &Args,
        case: &Case,
        answers: Answers,
        tolerances: &Tolerances,
        pooled: &mut [Comparison],
    ) -> Result<CaseResult, Failure> {
        let specs = &self.sides[0].selection.signature.outputs;
        match answers {
            [Ok(a), Ok(b)] => {
                let outputs = args.target.within("comparing the outputs", || {
                    let mut outputs = Vec::new();
                    for (place, spec) in specs.iter().enumerate() {
                        let pair = (&a.outputs[place], &b.outputs[self.outputs[place]]);
                        outputs.push(judge(&spec.name, pair, tolerances, &mut pooled[place]));
                    }
                    outputs
                });
                Ok(CaseResult::compared(&case.label, outputs))
            }
            // Sizes chosen here that neither can run say nothing of their agreement.
            [Err(error), Err(_)] if case.sizes_are_ours => {
                Ok(CaseResult::skipped(&case.label, &error))
            }
            [Err(error), _] => Err(failed(case, "A", &error)),
            [_, Err(error)] if case.sizes_are_ours => Ok(CaseResult::failed(
                &case.label,
                format!("A runs, B does not: {error}"),
            )),
            [_, Err(error)] => Err(failed(case, "B", &error)),
        }
    }
}

fn judge(
    name: &str,
    (a, b): (&Tensor, &Tensor),
    tolerances: &Tolerances,
    pooled: &mut Comparison,
) -> OutputResult {
    let mut comparison = Comparison::default();
    let added = comparison.add(a, b).and_then(|()| pooled.add(a, b));
    if let Err(error) = added {
        return OutputResult::incomparable(name, a, error.to_string());
    }
    let agreement = comparison.agreement();
    let violations = tolerances.violations(&agreement);
    OutputResult::compared(name, a, agreement, violations)
}

fn failed(case: &Case, side: &str, error: &EngineError) -> Failure {
    Failure::Other(format!("{side} failed on {}: {error}", case.label))
}

impl ToleranceArgs {
    /// Those given; if none is, those that suit the lower precision of the two, whichever it is, and what
    /// says so. A provider that computes in half precision whatever the model says is judged as such.
    fn of(&self, sides: &[Side; 2], started: &[Started; 2]) -> (Tolerances, Option<Judged>) {
        let given = Tolerances {
            max_abs: self.max_abs,
            max_rel: self.max_rel,
            min_cosine: self.min_cosine,
            min_snr_db: self.min_snr,
            min_top1: self.min_top1,
        };
        if !given.is_empty() {
            return (given, None);
        }
        let precision = |place: usize| {
            let own = Precision::of(&sides[place].selection);
            let half = Precision::half(Provider::Qnn.name());
            let is_half = started[place].placement.has(Provider::Qnn);
            if is_half && half.is_below(&own) {
                half
            } else {
                own
            }
        };
        let (a, b) = (precision(0), precision(1));
        let (side, lower) = if a.is_below(&b) {
            ("A", a)
        } else if b.is_below(&a) {
            ("B", b)
        } else if a.token == b.token {
            ("both", b)
        } else {
            ("B", b)
        };
        (lower.tolerances(), Some(Judged::new(side, &lower)))
    }
}
