//! The result of a benchmark as a JSON document and as a table.

use std::fmt::Write as _;

use serde::Serialize;

use super::super::sides::{ExecutionSide, ExecutionSideEngine, GivenInput};
use crate::cli::report::CommandReport;
use pkgtool_base::diagnostic::{Align, TextTable};
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::runtime::machine::Machine;
use pkgtool_engine::runtime::measure::{Amount, MeasurePlan, Series};
use pkgtool_engine::runtime::statistics::{Ratio, Times};
use pkgtool_engine::runtime::target::Started;

/// A benchmark. Version 1 of the document; later versions only add fields. The names of fields
/// include their units.
#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    version: u32,
    tool_version: &'static str,
    /// The machine that ran the benchmark.
    pub(super) machine: Machine,
    threads: Option<u16>,
    warm_up_runs: u64,
    rounds: u32,
    timed_runs: Option<u64>,
    timed_seconds: Option<f64>,
    /// The measured series, in the order of the command line.
    pub(super) series: Vec<SeriesReport>,
}

/// One measured series: a model on an engine.
#[derive(Debug, Serialize)]
pub(super) struct SeriesReport {
    /// A short label that distinguishes the series from the others.
    pub(super) label: String,
    model: String,
    package: Option<String>,
    precision: Option<String>,
    backend: Option<&'static str>,
    component: Option<String>,
    method: String,
    #[serde(flatten)]
    engine: ExecutionSideEngine,
    /// The inputs of the runs.
    pub(super) inputs: Vec<GivenInput>,
    /// Load time of the model, in milliseconds.
    pub(super) load_ms: f64,
    /// Duration of the first run, in milliseconds.
    pub(super) first_run_ms: f64,
    /// Statistics of the timed runs; absent if there were none.
    #[serde(flatten)]
    pub(super) times: Option<Times>,
    /// Ratio of this series to the first one; absent for the first.
    pub(super) ratio: Option<Ratio>,
    /// Peak memory of the worker process since its start, in bytes.
    pub(super) peak_memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples_ms: Option<Vec<f64>>,
}

impl SeriesReport {
    /// Creates the report of a series, compared with the first one.
    pub(super) fn of(
        side: &ExecutionSide,
        started: &mut Started,
        series: &Series,
        first: &Series,
        samples: bool,
    ) -> Self {
        let variant = side.selection.variant.as_ref();
        let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1000.0;
        Self {
            label: side.label(started.candidate),
            model: side.selection.model.display().to_string(),
            package: variant.map(|variant| variant.package.clone()),
            precision: variant.and_then(|variant| variant.precision.clone()),
            backend: started.backend.map(pkgtool_base::package::Backend::name),
            component: variant.and_then(|variant| variant.component.clone()),
            method: side.selection.signature.method.clone(),
            engine: ExecutionSideEngine::of(side, started),
            inputs: Vec::new(),
            load_ms: milliseconds(started.load_time),
            first_run_ms: milliseconds(started.first_answer.time),
            times: Times::of(series.times()),
            ratio: (!std::ptr::eq(series, first))
                .then(|| Ratio::of(series, first))
                .flatten(),
            peak_memory_bytes: started.worker.peak_memory(),
            samples_ms: samples.then(|| series.times().map(milliseconds).collect()),
        }
    }
}

impl CommandReport for BenchReport {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}", self.machine)?;
        writeln!(text, "{}", self.conditions())?;
        for (place, series) in self.series.iter().enumerate() {
            writeln!(text, "{}  {}", place + 1, defuse_line(&series.label))?;
            series.engine.write_remarks(text)?;
            writeln!(text, "   on {}", GivenInput::line(&series.inputs))?;
        }
        let head = [
            "", "p50", "p90", "p99", "min", "mean", "runs/s", "load", "first", "memory", "ratio",
        ];
        let mut table = TextTable::new(head.map(|_| Align::Right));
        table.row(head);
        for (place, series) in self.series.iter().enumerate() {
            table.row(series.cells(place + 1));
        }
        write!(text, "{table}")
    }

    fn document(&self) -> impl Serialize {
        self
    }
}

impl BenchReport {
    /// Creates the report from the measurements and their conditions.
    pub(super) fn new(
        machine: Machine,
        threads: Option<u16>,
        plan: &MeasurePlan,
        series: Vec<SeriesReport>,
    ) -> Self {
        let (timed_runs, timed_seconds) = match plan.amount {
            Amount::Runs(runs) => (Some(runs), None),
            Amount::Time(time) => (None, Some(time.as_secs_f64())),
        };
        Self {
            version: 1,
            tool_version: env!("CARGO_PKG_VERSION"),
            machine,
            threads,
            warm_up_runs: plan.warm_up,
            rounds: plan.rounds,
            timed_runs,
            timed_seconds,
            series,
        }
    }

    /// Describes the conditions of the measurement in one line.
    pub(super) fn conditions(&self) -> String {
        let threads = match self.threads {
            None => "all cores".to_owned(),
            Some(1) => "1 thread".to_owned(),
            Some(threads) => format!("{threads} threads"),
        };
        let amount = match (self.timed_runs, self.timed_seconds) {
            (Some(runs), _) => format!("{runs} runs"),
            (None, seconds) => format!("{} s", seconds.unwrap_or_default()),
        };
        format!(
            "{threads}, {amount} each in {} rounds after {} warm-up runs",
            self.rounds, self.warm_up_runs
        )
    }
}

impl SeriesReport {
    fn cells(&self, number: usize) -> [String; 11] {
        let time = |of: fn(&Times) -> f64| {
            let times = self.times.as_ref();
            times.map_or_else(String::new, |times| milliseconds(of(times)))
        };
        let throughput = self.times.as_ref().map(|times| times.throughput_per_s);
        [
            number.to_string(),
            time(|times| times.p50_ms),
            time(|times| times.p90_ms),
            time(|times| times.p99_ms),
            time(|times| times.min_ms),
            time(|times| times.mean_ms),
            throughput.map_or_else(String::new, |runs| format!("{runs:.1}")),
            milliseconds(self.load_ms),
            milliseconds(self.first_run_ms),
            memory(self.peak_memory_bytes),
            self.ratio.as_ref().map_or_else(|| "1".to_owned(), ratio),
        ]
    }
}

/// Formats a time in a suitable unit.
pub(super) fn milliseconds(time: f64) -> String {
    if time >= 1000.0 {
        format!("{:.2} s", time / 1000.0)
    } else if time >= 1.0 {
        format!("{time:.2} ms")
    } else {
        format!("{:.1} µs", time * 1000.0)
    }
}

/// Formats a ratio with its confidence interval, with as many digits as are meaningful.
pub(super) fn ratio(ratio: &Ratio) -> String {
    let digits = if ratio.ratio < 0.1 { 4 } else { 2 };
    let Ratio { ratio, low, high } = ratio;
    format!("{ratio:.digits$} ({low:.digits$}–{high:.digits$})")
}

/// Formats a number of bytes in mebibytes.
pub(super) fn memory(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{} MiB", bytes >> 20))
}
