//! `pkgtool compare`.

mod all;
mod cases;
mod figures;
mod findings;
mod pair;
mod report;
mod sizes;
mod sweep;
mod tolerance_args;

use std::path::PathBuf;

use super::super::exit::{Exit, Failure};
use super::super::output;
use super::super::report_args::{self, FormatArg};
use super::input_args::InputOptions;
use super::sides::{Side, SideArgs};
use super::target_args::TargetArgs;
use crate::diagnostic::Report;
use findings::Place;
use pair::{Starter, compared};
use sweep::Sweep;
use tolerance_args::ToleranceArgs;

/// Arguments of `pkgtool compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch")]
pub(in super::super) struct Args {
    /// The reference, and what is compared with it: packages, configs or model files. One path is
    /// compared with itself, in two precisions or on two engines
    #[arg(value_name = "A [B]", required = true, num_args = 1..=2)]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    sides: SideArgs,

    #[command(flatten)]
    pub(super) target: TargetArgs,

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

    /// How many random sets of inputs to compare on; without it 4, and with --sizes 1 at each
    #[arg(long, value_name = "N", help_heading = "Inputs", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: Option<u64>,

    /// The first random seed
    #[arg(
        long,
        value_name = "SEED",
        default_value_t = 0,
        help_heading = "Inputs"
    )]
    first_seed: u64,

    /// Compare at each of several sizes of the dynamic dimensions and report the worst: the sizes that are
    /// named, else the smallest and the next, the largest, and those around powers of two
    #[arg(long, value_name = "N,…", num_args = 0..=1, default_missing_value = "", help_heading = "Inputs", conflicts_with_all = ["inputs_dir", "all"], value_parser = sweep::parse)]
    sizes: Option<Sweep>,

    /// Let what a program keeps from run to run (a cache, a counter) live on from one set of inputs to the
    /// next; without it each set is a first run
    #[arg(long)]
    keep_state: bool,

    /// Compare every variant of a package, for all its backends, with one of them
    #[arg(long)]
    all: bool,

    /// What all are compared with: a precision, a backend, or both as BACKEND/PRECISION; without it the
    /// variant that is least quantised of those that run here
    #[arg(long, value_name = "VARIANT", requires = "all")]
    reference: Option<String>,

    /// Count what is not compared (nothing here runs it, or it has no such method) as a difference
    #[arg(long, requires = "all")]
    require_all: bool,

    /// Write the table as Markdown, for a model card
    #[arg(long, value_name = "FILE", requires = "all")]
    markdown: Option<PathBuf>,

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

const HELP: &str = "\
Both run on the same inputs, matched by name, then by order: a size that one fixes holds for the open
dimensions of the other. Dimensions that stay open are run at their upper bound and below it (at 1 and 3
where neither states a bound); --sizes runs more sizes. The precision is the config's; of a model file it is what the file holds.

Examples:
  pkgtool compare model/ --precision fp32,int8
  pkgtool compare model.onnx --engine ort,tract --max-rel 1e-4
  pkgtool compare old.onnx new.onnx --inputs-dir samples/ --report junit=compare.xml
  pkgtool compare model/ --backend xnnpack,coreml
  pkgtool compare model.onnx --engine ort,tract --sizes
  pkgtool compare model/ --all --markdown agreement.md

Exit codes: 0 they agree, 1 they don't, 2 they could not be compared. With --all: 0 what was compared
agrees, 1 something differs, 2 nothing could be compared.";

impl Args {
    /// How many random sets of inputs there are at each size.
    fn seeds(&self) -> u64 {
        let usual = if self.sizes.is_some() { 1 } else { 4 };
        self.seeds.unwrap_or(usual)
    }
}

/// Runs the command.
pub(in super::super) fn run(args: &Args) -> Result<Exit, Failure> {
    if args.all {
        return all::run(args);
    }
    let sides = args.sides.sides(&args.paths, &args.target)?;
    let sides = <[Side; 2]>::try_from(sides).map_err(|sides| {
        Failure::Other(format!(
            "there must be two things to compare, and these are {}: give two paths, or one with \
             two precisions (--precision fp32,int8), backends or engines; --all compares more than two",
            sides.len()
        ))
    })?;
    let report = compared(args, &sides, &mut Starter::once(&args.target)?)?;
    let [_, b] = &sides;
    let found = findings::of(&report, &Place::of(b));
    write(args, &found, || {
        if args.json {
            report.to_json()
        } else {
            report.to_text()
        }
    })?;
    Ok(if report.agrees {
        Exit::Clean
    } else {
        Exit::Findings
    })
}

/// Writes the reports, and the answer, unless a report takes its place.
fn write(args: &Args, found: &Report, answer: impl FnOnce() -> String) -> Result<(), Failure> {
    let rules = findings::rules();
    let paths = report_args::machine_paths(found, args.root.as_deref());
    let style = findings::style(output::width(), &rules, &paths);
    report_args::write(&args.reports, found, &style)?;
    // A report that goes to standard output goes there alone.
    if !report_args::take_stdout(&args.reports)? {
        output::print(&answer())?;
    }
    Ok(())
}
