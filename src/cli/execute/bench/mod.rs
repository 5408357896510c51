//! `pkgtool bench`.

mod baseline;
mod curves;
mod findings;
mod gate;
mod heat;
mod html;
mod passes;
mod report;
mod starts;
mod sustained;

use std::path::PathBuf;
use std::time::Duration;

use super::super::exit::{Exit, Failure};
use super::super::progress;
use super::super::report as command_report;
use super::input_args::InputOptions;
use super::profile::ProfileArgs;
use super::sides::{self, ExecutionSide, GivenInput, SideArgs};
use super::sizes::{TrialModel, with_sizes};
use super::target_args::{GENERATING_INPUTS, TargetArgs, seconds};
use baseline::Baseline;
use gate::{GateArgs, GateJudge};
use heat::HeatArgs;
use passes::{MeasuredModel, PassArgs};
use pkgtool_base::diagnostic::book;
use pkgtool_engine::runtime::busy::LoadMeter;
use pkgtool_engine::runtime::device::DeviceAddress;
use pkgtool_engine::runtime::machine::Machine;
use pkgtool_engine::runtime::measure::{self, Amount, MeasurePlan, Series};
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::runtime::worker::Worker;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::tensor::input::{self, Generator, InputArgs, InputError};
use report::{BenchReport, MeasuredDevice, SeriesReport};
use sustained::SustainedReport;

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

    /// Number of rounds; the models take turns in each round [default: 20, or 60 with --max-ratio]
    #[arg(long, value_name = "N", help_heading = "Measuring", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Include the time of every run in the JSON document
    #[arg(long)]
    samples: bool,

    /// Write an HTML report with a plot to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the table as Markdown to FILE
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    #[command(flatten)]
    heat: HeatArgs,

    #[command(flatten)]
    passes: PassArgs,

    #[command(flatten)]
    profile: ProfileArgs,

    #[command(flatten)]
    gate: GateArgs,

    #[command(flatten)]
    pub(super) target: TargetArgs,

    #[command(flatten)]
    inputs: InputOptions,
}

const EXAMPLES: &str = "\
Examples:
  pkgtool bench model.onnx --engine ort,tract --threads 1
  pkgtool bench model/ --precision fp32,int8 --seconds 10 --html bench.html
  pkgtool bench model.onnx --profile --trace trace.json
  pkgtool bench before.onnx after.onnx --max-ratio 1.05 --report junit=bench.xml
  pkgtool bench model/ --on adb --precision fp32,int8 --cool 37 --sustained 10m --html curves.html
  pkgtool bench model/ --on adb --cores big --cold-starts 5
  pkgtool bench model/ --write-baseline times.json
  pkgtool bench model/ --baseline times.json --max-ratio 1.1

Exit codes:
  0   measured, and no model is slower than --max-ratio allows
  1   a model is slower than --max-ratio allows
  2   invalid usage, or a model could not be measured
  3   nothing found to measure";

/// Number of times that a measurement is extended if a limit is within the interval of a ratio.
const MAX_EXTENSIONS: u32 = 3;

/// A side that is loaded and has run once.
struct StartedSide {
    started: Started,
    inputs: Vec<Tensor>,
    given: Vec<GivenInput>,
}

/// Runs the command.
pub(in super::super) fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    args.passes.require_possible(args.target.device.each())?;
    let sides = args.sides.sides(&args.paths, &args.target)?;
    let devices = devices(args)?;
    let machine = devices.first().map(|first| first.machine.clone());
    let machine = machine.unwrap_or_else(Machine::this);
    let cores = args.target.cores.as_ref();
    let threads = (args.target.threads, cores);
    let gate = &args.gate;
    let baseline = gate.baseline.as_deref();
    let baseline = baseline.map(|path| Baseline::read(path, &machine, threads));
    let baseline = baseline.transpose()?;
    if gate.max_ratio.is_some() && baseline.is_none() && sides.len() < 2 {
        let reason =
            "--max-ratio needs a model to compare with: give a second one, or --baseline FILE";
        return Err(Failure::Other(reason.to_owned()));
    }
    let mut given = args.target.limit_memory(args.inputs.to_args());
    given.default = Some(Generator::Random { seed: 0 });
    let first = &sides[0];
    let model = TrialModel {
        target: &args.target,
        which: first.which(),
        selection: &first.selection,
    };
    let mut started = with_sizes(&model, &given, |given| start(args, &sides, given))?;
    if let Some(time) = args.heat.sustained {
        return sustain(args, &sides, &mut started, (machine, devices, time));
    }
    let mut reference = None;
    if baseline.is_some() || gate.write_baseline.is_some() {
        reference = Some(baseline::start_reference(&args.target)?);
    }
    // The load of this machine says nothing about another one.
    let meter = devices.is_empty().then(|| {
        LoadMeter::start(
            started
                .iter()
                .map(|side| side.started.worker.id())
                .chain(reference.iter().map(|reference| reference.worker.id())),
        )
    });
    let labels: Vec<String> = sides
        .iter()
        .zip(&started)
        .map(|(side, one)| side.label(one.started.candidate))
        .collect();
    if let Some(baseline) = &baseline {
        baseline.check(&labels)?;
    }
    let judge = GateJudge {
        limit: gate.max_ratio,
        baseline: baseline.as_ref(),
        labels: &labels,
    };
    args.heat
        .wait(&args.target.device, args.target.device.each())?;
    let measured = measure(args, &sides, (&mut started, reference.as_mut()), &judge)?;
    let other_load = meter.and_then(LoadMeter::finish);
    let series = &measured[..sides.len()];
    let mut reports = Vec::new();
    let mut profiles = Vec::new();
    for (place, (side, one)) in sides.iter().zip(&mut started).enumerate() {
        let mut report = SeriesReport::of(side, &mut one.started, &series[place], args.samples);
        report.judged(judge.judge(&measured, place));
        let label = labels[place].clone();
        let launcher = args.target.launcher_on(&side.device)?;
        let profile = args
            .profile
            .record(label, &one.started, &one.inputs, &launcher)?;
        report.profile = profile.as_ref().map(|it| it.report(&one.started));
        report.inputs = std::mem::take(&mut one.given);
        profiles.extend(profile);
        reports.push(report);
    }
    let models = end(started, reference);
    let results = args.passes.measure(&args.target, &sides, &models)?;
    for (report, results) in reports.iter_mut().zip(results) {
        report.proportional_memory = results.memory;
        report.starts = results.starts;
    }
    let report =
        BenchReport::new(machine, threads, &args.plan(), reports).under(other_load, gate.max_ratio);
    let report = report.on(devices);
    finish(args, &sides, &report, &measured)?;
    args.profile.write_trace(profiles.iter())?;
    Ok(if report.is_slower() {
        Exit::Findings
    } else {
        Exit::Clean
    })
}

/// Ends the processes of the timed runs. Returns what starts their models again.
fn end(started: Vec<StartedSide>, reference: Option<Started>) -> Vec<MeasuredModel> {
    drop(reference);
    let models = started.into_iter().map(|side| MeasuredModel {
        restart: side.started.restart(),
        inputs: side.inputs,
    });
    models.collect()
}

/// Describes the devices that the user named; empty if everything runs on this machine.
fn devices(args: &BenchArgs) -> Result<Vec<MeasuredDevice>, Failure> {
    let device = &args.target.device;
    if device.each().iter().all(|it| *it == DeviceAddress::Local) {
        return Ok(Vec::new());
    }
    let gate = &args.gate;
    if gate.baseline.is_some() || gate.write_baseline.is_some() {
        device.require_one()?;
    }
    let described = device.each().iter().map(|address| {
        Ok(MeasuredDevice {
            address: address.to_string(),
            machine: device.machine(address)?,
        })
    });
    described.collect()
}

/// Runs each model without a pause, and prints how its time changes.
fn sustain(
    args: &BenchArgs,
    sides: &[ExecutionSide],
    started: &mut [StartedSide],
    (machine, devices, time): (Machine, Vec<MeasuredDevice>, Duration),
) -> Result<Exit, Failure> {
    let device = &args.target.device;
    let series = args.heat.sustain(device, sides, started, time)?;
    let threads = (args.target.threads, args.target.cores.as_ref());
    let report = SustainedReport::new(machine, devices, threads, time, series);
    if let Some(path) = &args.html {
        super::write_file(path, &curves::page(&report))?;
    }
    if let Some(path) = &args.markdown {
        super::write_file(path, &report.table().to_markdown())?;
    }
    command_report::print(&report, args.json)?;
    Ok(Exit::Clean)
}

/// Writes all files, and prints the report.
fn finish(
    args: &BenchArgs,
    sides: &[ExecutionSide],
    report: &BenchReport,
    measured: &[Series],
) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        super::write_file(path, &html::page(report, &measured[..sides.len()]))?;
    }
    if let Some(path) = &args.markdown {
        super::write_file(path, &report.to_markdown())?;
    }
    if let (Some(path), Some(reference)) = (&args.gate.write_baseline, measured.get(sides.len())) {
        let labels = report.series.iter().map(|series| series.label.as_str());
        let series = labels.zip(measured);
        let threads = (args.target.threads, args.target.cores.as_ref());
        let conditions = (&report.machine, threads, report.date.clone());
        Baseline::new(conditions, series, reference).write(path)?;
    }
    let found = findings::of(sides, report);
    let rules = findings::rules();
    args.gate.findings.write(&found, &rules, report, args.json)
}

/// Loads each side and runs it once on the common inputs.
fn start(
    args: &BenchArgs,
    sides: &[ExecutionSide],
    given: &InputArgs,
) -> Result<Vec<StartedSide>, Failure> {
    let label = |_: usize, side: &ExecutionSide| sides::what(&side.selection);
    let (joint, given) = sides::joint_signature(sides, label, given)?;
    let fail = |error: InputError| Failure::Other(error.to_string());
    let inputs = args.target.within(GENERATING_INPUTS, || {
        input::assemble(joint.signature(), &given)
    });
    let inputs = inputs.map_err(fail)?;
    let mut started = Vec::new();
    for (place, side) in sides.iter().enumerate() {
        let inputs = joint.inputs_of(place, &inputs).map_err(fail)?;
        let given = GivenInput::list(&side.selection.signature.inputs, &inputs);
        let wish = side.wish(&args.target);
        let launcher = args.target.launcher_on(&side.device)?;
        started.push(StartedSide {
            started: super::start_with_notes(&wish, &inputs, &launcher)?,
            inputs,
            given,
        });
    }
    Ok(started)
}

/// Measures all sides and the reference, which is the last one. The measurement is extended as long
/// as a limit is undecided.
fn measure(
    args: &BenchArgs,
    sides: &[ExecutionSide],
    (started, reference): (&mut [StartedSide], Option<&mut Started>),
    judge: &GateJudge<'_>,
) -> Result<Vec<Series>, Failure> {
    let mut plan = args.plan();
    let template = "{bar:30} {pos}/{len} rounds, {eta} left";
    let bar = progress::bar(u64::from(plan.rounds), template);
    let started = started.iter_mut().map(|side| &mut side.started);
    let mut workers: Vec<&mut Worker> = started
        .chain(reference)
        .map(|one| &mut one.worker)
        .collect();
    let mut measured = vec![Series::default(); workers.len()];
    for extension in 0..=MAX_EXTENSIONS {
        if extension > 0 {
            bar.inc_length(u64::from(plan.rounds));
            plan.warm_up = 0;
        }
        let series = measure::measure_interleaved(&mut workers, &plan, |_| bar.inc(1));
        let series = series.map_err(|(place, error)| {
            let model = sides.get(place).map(|side| side.selection.model.display());
            let model = model.map_or_else(|| "the reference".to_owned(), |it| it.to_string());
            Failure::Other(format!("{model}: {error}"))
        })?;
        for (all, more) in measured.iter_mut().zip(series) {
            all.rounds.extend(more.rounds);
        }
        if !judge.is_undecided(&measured) {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(measured)
}

impl BenchArgs {
    fn plan(&self) -> MeasurePlan {
        // Short turns disturb both sides of a ratio alike.
        let usual = if self.gate.max_ratio.is_some() {
            60
        } else {
            20
        };
        MeasurePlan {
            warm_up: self.warm_up,
            amount: self.runs.map_or(Amount::Time(self.seconds), Amount::Runs),
            rounds: self.rounds.unwrap_or(usual),
        }
    }
}
