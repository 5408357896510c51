//! `pkgtool bench`.

mod html;
mod report;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::super::exit::{Exit, Failure};
use super::super::progress;
use super::super::report as reports;
use super::input_args::InputOptions;
use super::sides::{self, ExecutionSide, GivenInput, SideArgs};
use super::sizes::{TrialModel, with_sizes};
use super::target_args::{GENERATING_INPUTS, TargetArgs, seconds};
use pkgtool_base::diagnostic::book;
use pkgtool_base::source::text::escape;
use pkgtool_engine::runtime::machine::Machine;
use pkgtool_engine::runtime::measure::{self, Amount, MeasurePlan};
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::runtime::worker::Worker;
use pkgtool_engine::tensor::input::{self, Generator, InputArgs, InputError};
use report::{BenchReport, SeriesReport};

/// Arguments of `pkgtool bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "bench"))]
pub(in super::super) struct BenchArgs {
    /// Packages, configs or model files
    #[arg(value_name = "PACKAGE|CONFIG|MODEL", required = true)]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    sides: SideArgs,

    /// Number of warm-up runs of each model before the timed runs
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        help_heading = "Measuring"
    )]
    warm_up: u64,

    /// Number of timed runs of each model
    #[arg(long, value_name = "N", help_heading = "Measuring", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    runs: Option<u64>,

    /// Timed duration of each model, in seconds
    #[arg(long, value_name = "S", default_value = "5", help_heading = "Measuring", value_parser = seconds)]
    seconds: Duration,

    /// Number of rounds; the models take turns in each round
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = "Measuring", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Include the time of every run in the JSON document
    #[arg(long)]
    samples: bool,

    /// Write an HTML report with a plot to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    pub(super) target: TargetArgs,

    #[command(flatten)]
    inputs: InputOptions,
}

const EXAMPLES: &str = "\
Examples:
  pkgtool bench model.onnx --engine ort,tract --threads 1
  pkgtool bench model/ --precision fp32,int8 --seconds 10 --html bench.html";

/// Runs the command.
pub(in super::super) fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    let sides = args.sides.sides(&args.paths, &args.target)?;
    let mut given = args.target.limit_memory(args.inputs.to_args());
    given.default = Some(Generator::Random { seed: 0 });
    let first = &sides[0];
    let model = TrialModel {
        target: &args.target,
        which: first.which(),
        selection: &first.selection,
    };
    let (mut started, shapes) = with_sizes(&model, &given, |given| start(args, &sides, given))?;
    let series = measure(args, &sides, &mut started)?;
    let plan = args.plan();
    let mut reports = Vec::new();
    let ran = sides.iter().zip(&mut started).zip(shapes);
    for (((side, one), inputs), times) in ran.zip(&series) {
        let mut report = SeriesReport::of(side, one, times, &series[0], args.samples);
        report.inputs = inputs;
        reports.push(report);
    }
    let report = BenchReport::new(Machine::this(), args.target.threads, &plan, reports);
    if let Some(path) = &args.html {
        let page = html::page(&report, &series);
        fs::write(path, &*escape(&page))
            .map_err(|error| Failure::Other(format!("cannot write {}: {error}", path.display())))?;
    }
    reports::print(&report, args.json)?;
    Ok(Exit::Clean)
}

/// Loads each side and runs it once on the common inputs. Returns the inputs of each side.
fn start(
    args: &BenchArgs,
    sides: &[ExecutionSide],
    given: &InputArgs,
) -> Result<(Vec<Started>, Vec<Vec<GivenInput>>), Failure> {
    let label = |_: usize, side: &ExecutionSide| sides::what(&side.selection);
    let (joint, given) = sides::joint_signature(sides, label, given)?;
    let fail = |error: InputError| Failure::Other(error.to_string());
    let inputs = args.target.within(GENERATING_INPUTS, || {
        input::assemble(joint.signature(), &given)
    });
    let inputs = inputs.map_err(fail)?;
    let launcher = args.target.launcher()?;
    let (mut started, mut shapes) = (Vec::new(), Vec::new());
    for (place, side) in sides.iter().enumerate() {
        let inputs = joint.inputs_of(place, &inputs).map_err(fail)?;
        shapes.push(GivenInput::list(&side.selection.signature.inputs, &inputs));
        let wish = side.wish(&args.target);
        started.push(super::start_with_notes(&wish, &inputs, &launcher)?);
    }
    Ok((started, shapes))
}

fn measure(
    args: &BenchArgs,
    sides: &[ExecutionSide],
    started: &mut [Started],
) -> Result<Vec<measure::Series>, Failure> {
    let plan = args.plan();
    let template = "{bar:30} {pos}/{len} rounds, {eta} left";
    let bar = progress::bar(u64::from(plan.rounds), template);
    let mut workers: Vec<&mut Worker> = started.iter_mut().map(|one| &mut one.worker).collect();
    let series = measure::measure_interleaved(&mut workers, &plan, |round| {
        bar.set_position(u64::from(round));
    });
    bar.finish_and_clear();
    series.map_err(|(place, error)| {
        let model = sides[place].selection.model.display();
        Failure::Other(format!("{model}: {error}"))
    })
}

impl BenchArgs {
    fn plan(&self) -> MeasurePlan {
        MeasurePlan {
            warm_up: self.warm_up,
            amount: self.runs.map_or(Amount::Time(self.seconds), Amount::Runs),
            rounds: self.rounds,
        }
    }
}
