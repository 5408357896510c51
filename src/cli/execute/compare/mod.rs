//! `pkgtool compare`.

mod cases;
mod findings;
mod report;

use std::path::PathBuf;

use super::super::exit::{Exit, Failure};
use super::super::output;
use super::super::report_args::{self, FormatArg};
use super::input_args::InputOptions;
use super::sides::{Side, SideArgs};
use super::target_args::TargetArgs;
use crate::model::Dim;
use crate::package::PrecisionList;
use crate::runtime::agreement::{Comparison, Tolerances};
use crate::runtime::target::Started;
use crate::runtime::{EngineError, Session, Signature, Tensor, TensorSpec};
use cases::{Case, Sources};
use report::{CaseResult, ComparisonReport, OutputResult, SideInfo};

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

    #[command(flatten)]
    tolerances: ToleranceArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Write the findings to a file as well; may be given several times
    #[arg(long = "report", value_name = "FORMAT=FILE", value_parser = report_args::parse)]
    reports: Vec<(FormatArg, PathBuf)>,
}

/// Demands on the agreement.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tolerances (without any, those that suit B's precision)")]
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
Dynamic dimensions without a given size are run at their upper bound and below it (at 1 and 3 where
the model states no bound).

Examples:
  pkgtool compare model/ --precision fp32,int8
  pkgtool compare model.onnx --engine ort,tract --max-rel 1e-4
  pkgtool compare old.onnx new.onnx --inputs-dir samples/ --report junit=compare.xml

Exit codes: 0 they agree, 1 they don't, 2 they could not be compared.";

/// Runs the command.
pub(in super::super) fn run(args: &Args) -> Result<Exit, Failure> {
    let sides = args.sides.sides(&args.paths, &args.target)?;
    let [a, b] = <[Side; 2]>::try_from(sides).map_err(|sides| {
        Failure::Other(format!(
            "there must be two things to compare, and these are {}: give two paths, or one with \
             two precisions (--precision fp32,int8) or two engines (--engine ort,tract)",
            sides.len()
        ))
    })?;
    same_interface(&a.selection.signature, &b.selection.signature)?;
    let given = args.inputs.to_args();
    let sources = Sources {
        given: &given,
        directory: args.inputs_dir.as_deref(),
        seeds: args.first_seed..args.first_seed.saturating_add(args.seeds),
    };
    let cases = cases::cases(&a.selection.signature, &sources)?;
    let report = compare(args, &a, &b, &cases)?;
    let found = findings::of(&report, &b);
    let rules = findings::rules();
    let paths = report_args::machine_paths(&found, None);
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

fn compare(args: &Args, a: &Side, b: &Side, cases: &[Case]) -> Result<ComparisonReport, Failure> {
    let launcher = args.target.launcher()?;
    let first = &cases[0].inputs;
    let mut started_a = super::started(&a.wish(&args.target), first, &launcher)?;
    let first_b = converted(first, &b.selection.signature)?;
    let mut started_b = super::started(&b.wish(&args.target), &first_b, &launcher)?;
    let tolerances = args.tolerances.of(b, &started_b);
    let specs = &a.selection.signature.outputs;
    let mut pooled = vec![Comparison::default(); specs.len()];
    let mut results = Vec::new();
    for case in cases {
        let inputs_b = converted(&case.inputs, &b.selection.signature)?;
        let answer_a = started_a.worker.run(&case.inputs);
        let answer_b = started_b.worker.run(&inputs_b);
        results.push(match (answer_a, answer_b) {
            (Ok(answer_a), Ok(answer_b)) => {
                let mut outputs = Vec::new();
                for (place, spec) in specs.iter().enumerate() {
                    let pair = (&answer_a.outputs[place], &answer_b.outputs[place]);
                    outputs.push(judge(&spec.name, pair, &tolerances, &mut pooled[place]));
                }
                CaseResult::compared(&case.label, outputs)
            }
            // Sizes chosen here that neither can run say nothing of their agreement.
            (Err(error), Err(_)) if case.sizes_are_ours => CaseResult::skipped(&case.label, &error),
            (Err(error), _) => return Err(failed(case, "A", &error)),
            (_, Err(error)) if case.sizes_are_ours => {
                CaseResult::failed(&case.label, format!("A runs, B does not: {error}"))
            }
            (_, Err(error)) => return Err(failed(case, "B", &error)),
        });
    }
    let names = specs.iter().map(|spec| spec.name.clone());
    let outputs = names
        .zip(pooled.iter().map(Comparison::agreement))
        .collect();
    Ok(ComparisonReport::new(
        SideInfo::of(a, &started_a),
        SideInfo::of(b, &started_b),
        tolerances,
        outputs,
        results,
    ))
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

/// Both must take and give the same: as many values, inputs of the same kind and shape.
fn same_interface(a: &Signature, b: &Signature) -> Result<(), Failure> {
    for (what, a, b) in [
        ("inputs", &a.inputs, &b.inputs),
        ("outputs", &a.outputs, &b.outputs),
    ] {
        if a.len() != b.len() {
            return Err(Failure::Other(format!(
                "A has {} {what} and B has {}: they cannot be compared",
                a.len(),
                b.len()
            )));
        }
    }
    for (a, b) in a.inputs.iter().zip(&b.inputs) {
        let same_kind = a.dtype == b.dtype || a.dtype.is_float() && b.dtype.is_float();
        if !same_kind || !same_shape(a, b) {
            return Err(Failure::Other(format!(
                "input `{}` of A is {a}, input `{}` of B is {b}: they cannot be fed the same",
                a.name, b.name
            )));
        }
    }
    Ok(())
}

/// Whether there are sizes that both can be run at, as far as their dimensions tell.
fn same_shape(a: &TensorSpec, b: &TensorSpec) -> bool {
    let (Some(a), Some(b)) = (&a.dims, &b.dims) else {
        return true;
    };
    let differ = |pair: (&Dim, &Dim)| matches!(pair, (Dim::Fixed(a), Dim::Fixed(b)) if a != b);
    a.len() == b.len() && !a.iter().zip(b).any(differ)
}

/// A's inputs for B: a float16 model gets the float32 model's values rounded.
fn converted(inputs: &[Tensor], signature: &Signature) -> Result<Vec<Tensor>, Failure> {
    let pairs = inputs.iter().zip(&signature.inputs);
    pairs
        .map(|(tensor, spec)| {
            if tensor.dtype() == spec.dtype {
                return Ok(tensor.clone());
            }
            let shape = tensor.shape().to_vec();
            let converted = Tensor::from_f64(spec.dtype, shape, tensor.to_f64());
            converted.map_err(|error| Failure::Other(error.to_string()))
        })
        .collect()
}

impl ToleranceArgs {
    /// Those given; if none is, those that suit the precision of B. A provider that computes in half
    /// precision whatever the model says is judged as such.
    fn of(&self, b: &Side, started: &Started) -> Tolerances {
        let given = Tolerances {
            max_abs: self.max_abs,
            max_rel: self.max_rel,
            min_cosine: self.min_cosine,
            min_snr_db: self.min_snr,
            min_top1: self.min_top1,
        };
        if !given.is_empty() {
            return given;
        }
        let variant = b.selection.variant.as_ref();
        let precision = variant.and_then(|variant| variant.precision.as_deref());
        let list = PrecisionList::embedded();
        let precision = precision.unwrap_or("fp32");
        let quantized = list.is_quantized(precision).unwrap_or(false);
        let half = started.placement.has(crate::runtime::Provider::Qnn);
        match precision {
            "fp32" if half => Tolerances::of_precision("fp16", false),
            _ => Tolerances::of_precision(precision, quantized),
        }
    }
}
