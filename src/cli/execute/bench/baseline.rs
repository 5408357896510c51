//! Saved times. They are ratios to a built-in reference model that is measured in the same rounds, so
//! that a machine that is slower today does not count as a slower model.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::built_in::BuiltInModel;
use super::super::target_args::TargetArgs;
use crate::cli::exit::Failure;
use crate::cli::output;
use pkgtool_engine::runtime::cores::CoreChoice;
use pkgtool_engine::runtime::machine::Machine;
use pkgtool_engine::runtime::measure::Series;
use pkgtool_engine::runtime::statistics::{Ratio, round_ratios};
use pkgtool_engine::runtime::target::{self, StartRequest, Started};

/// Products, a convolution, elementwise functions and copies on `float32[64, 512]`; written by
/// `tests/bench/reference.py`.
const REFERENCE_MODEL: &[u8] = include_bytes!("reference.onnx");
const REFERENCE_ELEMENTS: u16 = 64 * 512;
/// The engine of the reference. It is part of this binary, so no update of a library changes it.
const REFERENCE_ENGINE: &str = "tract";

/// Version of the file. Times of another version have another reference.
const VERSION: u32 = 1;
/// Maximum size of a file, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// The saved times.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Baseline {
    version: u32,
    tool_version: String,
    date: String,
    machine: String,
    threads: Option<u16>,
    /// The choice of cores, as on the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cores: Option<String>,
    series: Vec<SavedSeries>,
}

/// The saved times of one series.
#[derive(Debug, Serialize, Deserialize)]
struct SavedSeries {
    label: String,
    /// Ratio to the reference, in each round.
    ratios: Vec<f64>,
}

/// The number of threads and the choice of cores.
type BaselineThreads<'c> = (Option<u16>, Option<&'c CoreChoice>);

/// Describes the threads and cores of a measurement by their options.
fn threads_text(threads: Option<u16>, cores: Option<&str>) -> String {
    let threads = threads.map(|it| format!("--threads {it}"));
    let cores = cores.map(|it| format!("--cores {it}"));
    let options: Vec<String> = threads.into_iter().chain(cores).collect();
    if options.is_empty() {
        return "all cores, not pinned".to_owned();
    }
    options.join(" ")
}

/// Loads the reference and runs it once.
pub(super) fn start_reference(args: &TargetArgs) -> Result<Started, Failure> {
    let model = BuiltInModel::write(REFERENCE_MODEL)?;
    let values = (0..REFERENCE_ELEMENTS).map(|place| f64::from(place % 97) / 97.0 - 0.5);
    let (request, input) = model.request(values)?;
    let request = StartRequest {
        engine: Some(REFERENCE_ENGINE.to_owned()),
        threads: args.threads.map(usize::from),
        cores: args.cores.clone(),
        ..request
    };
    target::start(&request, &[input], &args.launcher()?)
        .map_err(|error| Failure::Other(format!("the reference model: {error}")))
}

impl Baseline {
    /// Creates a baseline of these series, each with its label.
    pub(super) fn new<'s>(
        (machine, (threads, cores), date): (&Machine, BaselineThreads<'_>, String),
        series: impl Iterator<Item = (&'s str, &'s Series)>,
        reference: &Series,
    ) -> Self {
        let series = series.map(|(label, series)| SavedSeries {
            label: label.to_owned(),
            ratios: round_ratios(series, reference),
        });
        Self {
            version: VERSION,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            date,
            machine: machine.to_string(),
            threads,
            cores: cores.map(ToString::to_string),
            series: series.collect(),
        }
    }

    /// Writes the file.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        super::super::write_file(path, &output::json(self))
    }

    /// Reads the file, and rejects times of another machine or with other threads.
    pub(super) fn read(
        path: &Path,
        machine: &Machine,
        (threads, cores): BaselineThreads<'_>,
    ) -> Result<Self, Failure> {
        let shown = path.display();
        let fail = |reason: String| Failure::Other(format!("{shown}: {reason}"));
        let size = fs::metadata(path)
            .map_err(|error| fail(error.to_string()))?
            .len();
        if size > MAX_BYTES {
            return Err(fail(format!(
                "this is not a baseline: it has {size} bytes, at most {MAX_BYTES} are allowed"
            )));
        }
        let text = fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
        let found: Self = serde_json::from_str(&text).map_err(|error| {
            fail(format!(
                "this is not a baseline of `--write-baseline`: {error}"
            ))
        })?;
        let again = "write a new baseline with `--write-baseline`";
        if found.version != VERSION {
            return Err(fail(format!(
                "expected version {VERSION} of a baseline, found {}: {again}",
                found.version
            )));
        }
        let is_time = |ratio: &f64| ratio.is_finite() && *ratio > 0.0;
        let is_broken =
            |saved: &&SavedSeries| saved.ratios.is_empty() || !saved.ratios.iter().all(is_time);
        if let Some(broken) = found.series.iter().find(is_broken) {
            return Err(fail(format!(
                "the times of `{}` are not numbers above 0: {again}",
                broken.label
            )));
        }
        let here = machine.to_string();
        if found.machine != here {
            return Err(fail(format!(
                "measured on another machine ({}), this one is {here}: {again}",
                found.machine
            )));
        }
        let cores = cores.map(ToString::to_string);
        if found.threads != threads || found.cores != cores {
            return Err(fail(format!(
                "measured with {}, and this is with {}: use the same, or {again}",
                threads_text(found.threads, found.cores.as_deref()),
                threads_text(threads, cores.as_deref())
            )));
        }
        Ok(found)
    }

    /// Fails if the times of a series are missing.
    pub(super) fn check(&self, labels: &[String]) -> Result<(), Failure> {
        match labels.iter().find(|label| self.saved(label).is_none()) {
            None => Ok(()),
            Some(label) => {
                let known: Vec<&str> = self.series.iter().map(|it| it.label.as_str()).collect();
                Err(Failure::Other(format!(
                    "the baseline has no times of `{label}`; it has: {}",
                    known.join("; ")
                )))
            }
        }
    }

    fn saved(&self, label: &str) -> Option<&SavedSeries> {
        self.series.iter().find(|saved| saved.label == label)
    }

    /// Returns the ratio of a series to its saved time.
    pub(super) fn ratio(&self, label: &str, series: &Series, reference: &Series) -> Option<Ratio> {
        let saved = self.saved(label)?;
        Ratio::between(&round_ratios(series, reference), &saved.ratios)
    }
}
