//! `pkgtool train`: trains a classifier as the gateway does, without a running gateway.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::block_on::runtime;
use super::exit::{Exit, Failure};
use super::local_catalog;
use super::output;
use super::progress;
use pkgtool_base::diagnostic::{Align, TextTable, book};
use pkgtool_serve::service::{Catalog, Device};
use pkgtool_serve::train::dataset::{DatasetLimits, DatasetSummary, check};
use pkgtool_serve::train::{FitOptions, Training, TrainingProgress};

/// Name of the file that marks a package as made by training.
const TRAINING_FILE: &str = "training.json";

/// Arguments of `pkgtool train`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "train"))]
pub(super) struct TrainArgs {
    /// Package of a model that embeds texts or images
    #[arg(value_name = "BASE")]
    base: PathBuf,

    /// Dataset: JSON lines of {"text": …, "label": …}, or with `image_base64` and `label`, or a CSV
    /// file with these columns. `labels` in place of `label` is a list, in CSV separated by `|`
    #[arg(value_name = "DATASET")]
    dataset: PathBuf,

    /// Name of the trained package: letters a to z, digits, `_` and `-`, which becomes `_` in file names
    #[arg(long, value_name = "NAME")]
    name: String,

    /// Output directory. An earlier result of training there is replaced [default: NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Training configuration: a JSON object with `method`, `l2`, `max_iterations`, `tolerance`,
    /// `validation_fraction`, `seed`, `class_weights`, `truncate`, `backend`, `precision`
    #[arg(long, value_name = "JSON", default_value = "{}")]
    config: String,

    /// Print the metrics of the result as JSON
    #[arg(long)]
    json: bool,

    /// Path of the ONNX Runtime library [default: search for it]
    #[arg(long, value_name = "FILE")]
    ort_lib: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  pkgtool train packages-examples/hush-sentence tickets.jsonl --name tickets
  pkgtool train models/minilm reviews.csv --name reviews --config '{\"class_weights\": \"balanced\"}'";

/// Runs the command.
pub(super) fn run(args: &TrainArgs) -> Result<Exit, Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let is_token = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    if args.name.is_empty() || !args.name.chars().all(is_token) {
        let message = "invalid --name: expected letters a to z, digits, `_` and `-`";
        return Err(Failure::Other(message.to_owned()));
    }
    let options = FitOptions::read_text(&args.config);
    let options = options.map_err(|error| Failure::Other(format!("--config: {error}")))?;
    let bounds = DatasetLimits {
        bytes: u64::MAX,
        ..DatasetLimits::default()
    };
    let summary = check(open(&args.dataset)?, bounds);
    let summary =
        summary.map_err(|error| other(&format_args!("{}: {error}", args.dataset.display())))?;
    let place = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(&args.name));
    require_replaceable(&place)?;
    let metrics = runtime()?.block_on(train(args, &options, &summary, bounds, &place))?;
    if args.json {
        output::print(&format!("{metrics:#}\n"))?;
    } else {
        output::print(&describe_result(args, &metrics, &place))?;
    }
    Ok(Exit::Clean)
}

async fn train(
    args: &TrainArgs,
    options: &FitOptions,
    summary: &DatasetSummary,
    bounds: DatasetLimits,
    place: &Path,
) -> Result<Value, Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let engines = local_catalog::engines(args.ort_lib.clone())?;
    let catalog = local_catalog::start(std::slice::from_ref(&args.base), &engines)?;
    let device = base(&catalog, args)?;
    let progress = Arc::new(TrainingProgress::default());
    let bar = show(&progress);
    let training = Training {
        device: &device,
        caller: local_catalog::OWNER,
        name: &args.name.replace('-', "_"),
        summary,
        bounds,
        options,
        cache: None,
        memory: u64::MAX,
        progress: &progress,
        output_directory: temporary_path(place),
    };
    let trained = training.run(Box::new(open(&args.dataset)?)).await;
    bar.finish_and_clear();
    drop(device);
    let trained = trained.map_err(|error| other(&error))?;
    trained.move_to(place).map_err(|error| other(&error))?;
    let metrics = trained.metrics.clone();
    catalog.stop().await;
    Ok(metrics)
}

fn open(dataset: &Path) -> Result<File, Failure> {
    let shown = dataset.display();
    File::open(dataset).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::Nothing(format!("{shown}: no such file")),
        _ => Failure::Other(format!("{shown}: {error}")),
    })
}

/// Fails if the output directory exists and was not made by training.
fn require_replaceable(place: &Path) -> Result<(), Failure> {
    let is_free = match fs::read_dir(place) {
        Ok(mut entries) => entries.next().is_none() || place.join(TRAINING_FILE).is_file(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    if is_free {
        return Ok(());
    }
    let shown = place.display();
    let message = format!(
        "{shown}: already exists and was not made by training; choose another directory with --out"
    );
    Err(Failure::Other(message))
}

/// Returns the temporary path where the package is built before it is moved to `place`.
fn temporary_path(place: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    place.with_file_name(name)
}

/// Returns the only trainable service of the catalog.
fn base(catalog: &Catalog, args: &TrainArgs) -> Result<Arc<Device>, Failure> {
    let shown = args.base.display();
    if let Some(unserved) = catalog.unserved().first() {
        let path = unserved.path.display();
        return Err(Failure::Other(format!("{path}: {}", unserved.reason)));
    }
    let all = catalog.all();
    let devices = all.iter().filter_map(|service| service.device());
    let mut trainable = devices.filter(|device| device.is_trainable());
    match (trainable.next(), trainable.next()) {
        (Some(device), None) => Ok(Arc::clone(device)),
        (None, _) if all.is_empty() => Err(Failure::Nothing(format!("{shown}: no package found"))),
        (None, _) => Err(Failure::Other(format!(
            "{shown}: not trainable: no model in it embeds texts or images"
        ))),
        (Some(_), Some(_)) => Err(Failure::Other(format!(
            "{shown}: several trainable packages: give the directory of one of them"
        ))),
    }
}

/// Shows a progress bar of the training.
fn show(progress: &Arc<TrainingProgress>) -> ProgressBar {
    let bar = progress::bar(100, "training {bar:40} {pos}%");
    let (followed, shown) = (Arc::clone(progress), bar.clone());
    tokio::spawn(async move {
        while !shown.is_finished() {
            shown.set_position(u64::from(followed.percentage()));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    bar
}

/// Formats the result of the training for people.
fn describe_result(args: &TrainArgs, metrics: &Value, place: &Path) -> String {
    let mut text = String::new();
    let number = |key: &str| metrics[key].as_u64().unwrap_or(0);
    let validation = &metrics["validation"];
    let none = json!([]);
    let labels = validation.get("labels").unwrap_or(&none);
    let labels = labels.as_array().map_or(&[][..], Vec::as_slice);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "trained `{}` by {} on {} rows, vectors of {} numbers",
        args.name,
        metrics["method"].as_str().unwrap_or("logistic"),
        number("rows"),
        number("dimensions"),
    );
    if !labels.is_empty() {
        let part = |value: &Value| value.as_f64().unwrap_or(0.0);
        let _ = writeln!(
            text,
            "validation on {} rows, {}: {} {:.3}, macro F1 {:.3}",
            number("validation_rows"),
            if metrics["cross_validated"] == json!(true) {
                "each by a classifier without it".to_owned()
            } else {
                format!("by a classifier of the other {}", number("training_rows"))
            },
            if metrics["multi_label"] == json!(true) {
                "all labels right"
            } else {
                "accuracy"
            },
            part(&validation["accuracy"]),
            part(&validation["macro_f1"]),
        );
        let [left, right] = [Align::Left, Align::Right];
        let mut table = TextTable::new([left, right, right, right, right]).indented();
        table.row(["label", "precision", "recall", "F1", "rows"]);
        for label in labels {
            table.row([
                label["label"].as_str().unwrap_or("").to_owned(),
                format!("{:.3}", part(&label["precision"])),
                format!("{:.3}", part(&label["recall"])),
                format!("{:.3}", part(&label["f1"])),
                label["support"].as_u64().unwrap_or(0).to_string(),
            ]);
        }
        let _ = write!(text, "{table}");
    }
    if metrics["compared"].as_u64().unwrap_or(0) > 0 && metrics["l2"].is_number() {
        let _ = writeln!(
            text,
            "selected by validation: `l2` {}, `class_weights` {}",
            metrics["l2"], metrics["class_weights"],
        );
    }
    if let Some(threshold) = metrics["threshold"].as_f64() {
        let _ = writeln!(
            text,
            "a label holds from a probability of {threshold:.1} on"
        );
    }
    let abstention = metrics["abstention"].as_object();
    let has_threshold = |it: &&serde_json::Map<String, Value>| it["threshold"] != json!(0.0);
    if let Some(abstention) = abstention.filter(has_threshold) {
        let part = |key: &str| abstention[key].as_f64().unwrap_or(0.0);
        let _ = writeln!(
            text,
            "abstains below a probability of {:.3}: {:.0}% of the rows have an answer, {:.0}% of these are right",
            part("threshold"),
            part("coverage") * 100.0,
            part("accuracy") * 100.0,
        );
    }
    for hint in metrics["hints"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "hint: {}", hint.as_str().unwrap_or(""));
    }
    for warning in metrics["warnings"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "warning: {}", warning.as_str().unwrap_or(""));
    }
    if metrics["converged"] == json!(false) {
        let _ = writeln!(text, "training did not converge within `max_iterations`");
    }
    let _ = writeln!(
        text,
        "package written to {}, with a report in report.html",
        place.display()
    );
    text
}
