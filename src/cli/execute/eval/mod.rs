//! `pkgtool eval`: the accuracy of variants on a data set.

mod items;
mod model;
mod report;
mod store;

use std::path::PathBuf;

use super::super::exit::{Exit, Failure};
use super::super::report as reports;
use super::limits::LimitArgs;
use super::selection_failure;
use super::sides::SideArgs;
use super::target_args::{TargetArgs, VariantChoice};
use items::evaluate;
use model::EvalModel;
use pkgtool_base::diagnostic::book;
use pkgtool_base::package::Backend;
use pkgtool_engine::runtime::every::{self, VariantFilter};
use pkgtool_eval::EvalDataset;
use report::{EvalReport, EvalRow};

/// Arguments of `pkgtool eval`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "eval"))]
pub(in super::super) struct EvalArgs {
    /// Directory of a package, a config, or a model file
    #[arg(value_name = "PACKAGE|CONFIG|MODEL")]
    path: PathBuf,

    /// Data set: a folder of pictures for each class, annotations of COCO, pictures with masks, sounds or pictures
    /// with their words, or a table
    #[arg(value_name = "DATASET")]
    dataset: PathBuf,

    #[command(flatten)]
    sides: SideArgs,

    /// Evaluate every variant of the package, for all its backends
    #[arg(long)]
    all: bool,

    /// Evaluate N items only, spread evenly over the data set
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,

    /// Keep the result of each item in DIR. If the evaluation is interrupted, the next one with the same DIR continues
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,

    /// Override a value of the recipe, such as `threshold=0.1` or `labels=["cat","dog"]`; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// Treat a model file without a package as one with this capability, or choose one of the package's
    #[arg(long = "as", value_name = "CAPABILITY")]
    capability: Option<String>,

    #[command(flatten)]
    limits: LimitArgs,

    /// Write the table as Markdown to FILE, for a model card
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) target: TargetArgs,
}

const EXAMPLES: &str = "\
Examples:
  pkgtool eval glimpse/ photos/
  pkgtool eval spotter/ annotations/instances_val2017.json --precision fp32,int8
  pkgtool eval listener/ recordings/ --all --markdown accuracy.md
  pkgtool eval glimpse/ photos/ --results results/ --at-least top-1=0.7

Exit codes:
  0   every item was evaluated, and every figure is within its limit
  1   an item or variant failed, or a figure is beyond its limit
  2   nothing could be evaluated";

/// A variant and engine to evaluate.
struct EvalSide {
    /// Its config, or what the user named.
    path: PathBuf,
    backend: Option<Backend>,
    precision: Option<String>,
    engine: Option<String>,
}

impl EvalSide {
    /// Returns the choice of the variant and engine.
    fn which(&self) -> VariantChoice<'_> {
        VariantChoice {
            precision: self.precision.as_deref(),
            backend: self.backend,
            engine: self.engine.as_deref(),
        }
    }
}

/// Runs the command.
pub(in super::super) fn run(args: &EvalArgs) -> Result<Exit, Failure> {
    let mut rows: Vec<EvalRow> = Vec::new();
    let mut dataset = None;
    for side in sides(args)? {
        let opened = EvalModel::new(args, &side);
        let row = opened.and_then(|mut model| {
            let dataset = match &mut dataset {
                Some((dataset, task)) if *task == model.task => dataset,
                other => &mut other.insert((open(args, &model)?, model.task)).0,
            };
            evaluate(args, &mut model, dataset)
        });
        rows.push(match row {
            Ok(row) => row,
            // One variant that cannot run does not hide the others.
            Err(failure) if args.all => EvalRow::failed(&side, &failure.to_string()),
            Err(failure) => return Err(failure),
        });
    }
    let Some((dataset, task)) = dataset else {
        let reasons: Vec<&str> = rows
            .iter()
            .filter_map(|row| row.failure.as_deref())
            .collect();
        return Err(Failure::Other(reasons.join("; ")));
    };
    let report = EvalReport::new(&args.dataset, &dataset, task, rows, &args.limits)?;
    // A file that cannot be written does not lose the figures.
    reports::print(&report, args.json)?;
    if let Some(path) = &args.markdown {
        super::write_file(path, &report.to_markdown())?;
    }
    Ok(if report.has_evaluated() {
        if report.is_clean() {
            Exit::Clean
        } else {
            Exit::Findings
        }
    } else {
        Exit::Failure
    })
}

/// Opens the data set for a model's task.
fn open(args: &EvalArgs, model: &EvalModel<'_>) -> Result<EvalDataset, Failure> {
    let dataset = EvalDataset::open(&args.dataset, model.task, model.takes());
    let mut dataset = dataset.map_err(|error| Failure::Other(error.to_string()))?;
    if let Some(most) = args.limit {
        dataset.limit(most as usize);
    }
    Ok(dataset)
}

/// Returns the variants and engines that the arguments select.
fn sides(args: &EvalArgs) -> Result<Vec<EvalSide>, Failure> {
    let variants: Vec<(PathBuf, Option<Backend>, Option<String>)> = if args.all {
        let wanted = VariantFilter {
            backends: args.sides.backends().to_vec(),
            precisions: args.sides.precisions().to_vec(),
            ..VariantFilter::default()
        };
        let variants = every::variants(&args.path, &wanted);
        let variants = variants.map_err(|error| selection_failure(&error))?;
        let variants = variants.into_iter();
        variants
            .map(|it| (it.config, it.backend, it.precision))
            .collect()
    } else {
        let variants = args.sides.variants().into_iter();
        variants
            .map(|(backend, precision)| (args.path.clone(), backend, precision))
            .collect()
    };
    let sides = variants.iter().flat_map(|(path, backend, precision)| {
        args.sides.engines().map(|engine| EvalSide {
            path: path.clone(),
            backend: *backend,
            precision: precision.clone(),
            engine: engine.map(str::to_owned),
        })
    });
    Ok(sides.collect())
}
