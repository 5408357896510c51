//! `pkgtool compare`.

mod all;
mod answers;
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
use super::findings::{FindingArgs, FindingLocation};
use super::input_args::InputOptions;
use super::limits::LimitArgs;
use super::sides::{ExecutionSide, SideArgs};
use super::target_args::TargetArgs;
use pair::{SideStarter, compare_sides};
use pkgtool_base::diagnostic::book;
use sweep::SizeSweep;
use tolerance_args::ToleranceArgs;

/// Arguments of `pkgtool compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "compare"))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(in super::super) struct CompareArgs {
    /// The reference and the model to compare with it: packages, configs or model files. A single
    /// path is compared with itself, in two precisions or on two engines
    #[arg(value_name = "A [B]", required = true, num_args = 1..=2)]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    sides: SideArgs,

    /// Directory of input sets: each .npz file, each folder with one file per input, or, for a
    /// method with one input, each file
    #[arg(
        long,
        value_name = "DIR",
        help_heading = "Inputs",
        conflicts_with = "inputs"
    )]
    inputs_dir: Option<PathBuf>,

    /// A picture or sound, or a directory of them: compare the answers in the terms of the task, such as the share of
    /// equal labels, the overlap of boxes, or the errors in words
    #[arg(long, value_name = "FILE|DIR", help_heading = "Inputs",
        conflicts_with_all = ["inputs", "inputs_dir", "seeds", "sizes", "keep_state", "all", "reports"])]
    data: Option<PathBuf>,

    /// Override a value of the recipe, such as `threshold=0.3`; may be given several times
    #[arg(
        long = "set",
        value_name = "NAME=VALUE",
        help_heading = "Inputs",
        requires = "data"
    )]
    set: Vec<String>,

    #[command(flatten)]
    limits: LimitArgs,

    /// Number of random input sets to compare on [default: 4, or 1 per combination with --sizes]
    #[arg(long, value_name = "N", help_heading = "Inputs", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: Option<u64>,

    /// First random seed
    #[arg(
        long,
        value_name = "SEED",
        default_value_t = 0,
        help_heading = "Inputs"
    )]
    first_seed: u64,

    /// Compare at several sizes of the dynamic dimensions and report the worst. Without a list: the
    /// smallest size and the next one, the largest, and those around powers of two
    #[arg(long, value_name = "N,…", num_args = 0..=1, default_missing_value = "", help_heading = "Inputs", conflicts_with_all = ["inputs_dir", "all"], value_parser = sweep::parse)]
    sizes: Option<SizeSweep>,

    /// Keep the program's state (a cache, a counter) from one input set to the next. By default,
    /// each set starts with fresh state
    #[arg(long)]
    keep_state: bool,

    /// Compare every variant of a package, for all its backends, with one of them
    #[arg(long)]
    all: bool,

    /// Variant to compare all others with: a precision, a backend, or BACKEND/PRECISION [default:
    /// the least quantized variant that runs here]
    #[arg(long, value_name = "VARIANT", requires = "all")]
    reference: Option<String>,

    /// Count variants that cannot be compared (no engine here, or a missing method) as different
    #[arg(long, requires = "all")]
    require_all: bool,

    /// Write the table as Markdown to FILE, for a model card
    #[arg(long, value_name = "FILE", requires = "all")]
    markdown: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    findings: FindingArgs,

    #[command(flatten)]
    pub(super) target: TargetArgs,

    #[command(flatten)]
    inputs: InputOptions,

    #[command(flatten)]
    tolerances: ToleranceArgs,
}

const EXAMPLES: &str = "\
Examples:
  pkgtool compare model/ --precision fp32,int8
  pkgtool compare model.onnx --engine ort,tract --max-rel 1e-4
  pkgtool compare old.onnx new.onnx --inputs-dir samples/ --report junit=compare.xml
  pkgtool compare model/ --backend xnnpack,coreml
  pkgtool compare model.onnx --engine ort,tract --sizes
  pkgtool compare model/ --all --markdown agreement.md
  pkgtool compare model/ --precision fp32,int8 --data photos/ --at-least same-top-1=0.98

Exit codes:
  0   the outputs agree; with --all: all compared variants agree; with --data: every file was answered, and every
      figure is within its limit
  1   the outputs differ; with --all: a variant differs or fails; with --data: a file failed, or a figure is beyond its
      limit
  2   nothing could be compared";

impl CompareArgs {
    /// Returns the number of random input sets per combination of sizes.
    fn seeds(&self) -> u64 {
        let usual = if self.sizes.is_some() { 1 } else { 4 };
        self.seeds.unwrap_or(usual)
    }
}

/// Runs the command.
pub(in super::super) fn run(args: &CompareArgs) -> Result<Exit, Failure> {
    if args.all {
        args.target.device.require_one()?;
        return all::run(args);
    }
    if let Some(data) = &args.data {
        args.target.device.require_one()?;
        return answers::run(args, data);
    }
    if !args.limits.is_empty() {
        let reason = "--at-least and --at-most limit figures of answers: add --data";
        return Err(Failure::Other(reason.to_owned()));
    }
    let sides = args.sides.sides(&args.paths, &args.target)?;
    let sides = <[ExecutionSide; 2]>::try_from(sides).map_err(|sides| {
        Failure::Other(format!(
            "compare needs two sides, got {}: give two paths, or one path with two precisions \
             (--precision fp32,int8), backends or engines; --all compares more than two",
            sides.len()
        ))
    })?;
    let report = compare_sides(args, &sides, &mut SideStarter::for_one_comparison())?;
    let [_, b] = &sides;
    let found = findings::of(&report, &FindingLocation::of(b));
    args.findings
        .write(&found, &findings::rules(), &report, args.json)?;
    Ok(if report.agrees {
        Exit::Clean
    } else {
        Exit::Findings
    })
}
