//! The result of a benchmark as a JSON document and as a table.

use std::fmt::Write as _;

use chrono::{SecondsFormat, Utc};
use serde::Serialize;

use super::super::profile::ProfileReport;
use super::super::sides::{ExecutionSide, ExecutionSideEngine, GivenInput, pinned_text};
use super::super::times::format_milliseconds;
use super::gate::{JudgedRatios, Verdict};
use super::starts::{NumberedStarts, StartsReport, starts_table, starts_text};
use crate::cli::report::CommandReport;
use pkgtool_base::diagnostic::{Align, TextTable};
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::runtime::busy::OtherLoad;
use pkgtool_engine::runtime::cores::CoreChoice;
use pkgtool_engine::runtime::machine::Machine;
use pkgtool_engine::runtime::measure::{Amount, MeasurePlan, Series};
use pkgtool_engine::runtime::restart::MemoryPass;
use pkgtool_engine::runtime::statistics::{Ratio, Times, round_spread};
use pkgtool_engine::runtime::target::Started;

/// A benchmark. Version 1 of the document; later versions only add fields. The names of fields
/// include their units.
#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    version: u32,
    tool_version: &'static str,
    /// When the benchmark ended, in UTC.
    pub(super) date: String,
    /// The machine that ran the benchmark: the first device, if there are any.
    pub(super) machine: Machine,
    /// The devices, in the order of the command line; empty if everything ran on this machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<MeasuredDevice>,
    threads: Option<u16>,
    /// The choice of cores, as on the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<String>,
    warm_up_runs: u64,
    rounds: u32,
    timed_runs: Option<u64>,
    timed_seconds: Option<f64>,
    /// The load of other programs during the measurement, if the system reports it.
    other_load: Option<OtherLoad>,
    /// The limit on ratios, if there is one.
    pub(super) max_ratio: Option<f64>,
    /// The measured series, in the order of the command line.
    pub(super) series: Vec<SeriesReport>,
}

/// A device of a benchmark.
#[derive(Debug, Serialize)]
pub(super) struct MeasuredDevice {
    pub(super) address: String,
    pub(super) machine: Machine,
}

/// Describes the devices of a benchmark, a line each, or the machine if there are none.
pub(super) fn machine_lines(machine: &Machine, devices: &[MeasuredDevice]) -> Vec<String> {
    if devices.is_empty() {
        return vec![machine.to_string()];
    }
    let lines = devices.iter();
    let lines = lines.map(|it| format!("{}: {}", defuse_line(&it.address), it.machine));
    lines.collect()
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
    pub(super) engine: ExecutionSideEngine,
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
    /// Ratio to the time in the baseline, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) baseline_ratio: Option<Ratio>,
    /// The verdict on the ratio, if there is a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<Verdict>,
    /// How much the medians of the rounds vary: the range of the middle 80 % of them, as a share of
    /// their median.
    pub(super) round_spread: Option<f64>,
    /// Peak memory of the worker process since its start, in bytes.
    pub(super) peak_memory_bytes: Option<u64>,
    /// Proportional memory of another process, if its system reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) proportional_memory: Option<MemoryPass>,
    /// Cold and warm starts in other processes, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) starts: Option<StartsReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples_ms: Option<Vec<f64>>,
    /// The time of each operator, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) profile: Option<ProfileReport>,
}

impl SeriesReport {
    /// Creates the report of a series, not yet compared with others.
    pub(super) fn of(
        side: &ExecutionSide,
        started: &mut Started,
        series: &Series,
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
            ratio: None,
            baseline_ratio: None,
            verdict: None,
            round_spread: round_spread(series),
            peak_memory_bytes: started.worker.peak_memory(),
            proportional_memory: None,
            starts: None,
            samples_ms: samples.then(|| series.times().map(milliseconds).collect()),
            profile: None,
        }
    }

    /// Sets the ratios and the verdict.
    pub(super) fn judged(&mut self, judged: JudgedRatios) {
        self.ratio = judged.to_first;
        self.baseline_ratio = judged.to_baseline;
        self.verdict = judged.verdict;
    }

    /// Returns the ratio that a limit is about, and the series that it refers to.
    pub(super) fn judged_ratio(&self) -> Option<(&Ratio, &'static str)> {
        let saved = self.baseline_ratio.as_ref();
        let saved = saved.map(|ratio| (ratio, "the baseline"));
        saved.or_else(|| Some((self.ratio.as_ref()?, "the first model")))
    }

    /// Writes the comparison with the baseline and the verdict.
    fn write_verdict(&self, text: &mut String) -> std::fmt::Result {
        let Some((found, of)) = self.judged_ratio() else {
            return Ok(());
        };
        if self.baseline_ratio.is_some() {
            write!(text, "   {} of the time of {of}", ratio(found))?;
        }
        match (self.verdict, self.baseline_ratio.is_some()) {
            (Some(verdict), true) => writeln!(text, ", {verdict}"),
            (Some(verdict), false) => writeln!(text, "   {verdict}"),
            (None, true) => writeln!(text),
            (None, false) => Ok(()),
        }
    }
}

impl CommandReport for BenchReport {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        for line in machine_lines(&self.machine, &self.devices) {
            writeln!(text, "{line}")?;
        }
        writeln!(text, "{}", self.conditions())?;
        if let Some(noise) = self.noise() {
            writeln!(text, "{noise}")?;
        }
        for (place, series) in self.series.iter().enumerate() {
            writeln!(text, "{}  {}", place + 1, defuse_line(&series.label))?;
            series.engine.write_remarks(text)?;
            writeln!(text, "   on {}", GivenInput::line(&series.inputs))?;
            series.write_verdict(text)?;
        }
        write!(text, "{}{}", self.table(), starts_text(&self.starts()))?;
        for (place, series) in self.series.iter().enumerate() {
            if let Some(profile) = &series.profile {
                writeln!(text, "{}  {}", place + 1, defuse_line(&series.label))?;
                profile.write(text)?;
            }
        }
        Ok(())
    }

    fn document(&self) -> impl Serialize {
        self
    }
}

impl BenchReport {
    /// Creates the report from the measurements and their conditions.
    pub(super) fn new(
        machine: Machine,
        (threads, cores): (Option<u16>, Option<&CoreChoice>),
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
            date: Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true),
            machine,
            devices: Vec::new(),
            threads,
            cores: cores.map(ToString::to_string),
            warm_up_runs: plan.warm_up,
            rounds: plan.rounds,
            timed_runs,
            timed_seconds,
            other_load: None,
            max_ratio: None,
            series,
        }
    }

    /// Adds the load of other programs and the limit on ratios.
    pub(super) fn under(self, other_load: Option<OtherLoad>, max_ratio: Option<f64>) -> Self {
        Self {
            other_load,
            max_ratio,
            ..self
        }
    }

    /// Adds the devices.
    pub(super) fn on(self, devices: Vec<MeasuredDevice>) -> Self {
        Self { devices, ..self }
    }

    /// Returns whether a series is slower than the limit.
    pub(super) fn is_slower(&self) -> bool {
        let mut verdicts = self.series.iter().map(|series| series.verdict);
        verdicts.any(|verdict| verdict == Some(Verdict::Slower))
    }

    /// Warns in one line if other programs kept the machine busy.
    pub(super) fn noise(&self) -> Option<String> {
        let load = self.other_load.filter(|load| load.is_busy)?;
        Some(format!(
            "busy: other programs used {:.1} of {} cores; compare only times of this run",
            load.cores, self.machine.cores
        ))
    }

    /// Describes the noise of the measurement in one line.
    pub(super) fn noise_figures(&self) -> String {
        let spreads = self.series.iter().filter_map(|series| series.round_spread);
        let spread = spreads.fold(0.0, f64::max) * 100.0;
        let spread = format!("the medians of the rounds vary by at most {spread:.0} %");
        match self.other_load {
            Some(load) => format!("{spread}; other programs used {:.2} cores", load.cores),
            None => spread,
        }
    }

    /// Returns the starts of all series that have them.
    pub(super) fn starts(&self) -> Vec<NumberedStarts<'_>> {
        let numbered = self.series.iter().enumerate();
        let starts = numbered.filter_map(|(place, one)| Some((place + 1, one.starts.as_ref()?)));
        starts.collect()
    }

    fn table(&self) -> TextTable {
        let head = [
            "", "p50", "p90", "p99", "min", "mean", "runs/s", "load", "first", "memory", "pss",
            "ratio",
        ];
        let mut table = TextTable::new(head.map(|_| Align::Right));
        table.row(head);
        for (place, series) in self.series.iter().enumerate() {
            table.row(series.cells(place + 1));
        }
        table
    }

    /// Returns the conditions, the series and the table in Markdown, with a final newline.
    pub(super) fn to_markdown(&self) -> String {
        let mut text = format!("{}, {}; {}", self.machine, self.date, self.conditions());
        if let Some(noise) = self.noise() {
            text += "\n\n";
            text += &noise;
        }
        text += "\n\n";
        text += &self.table().to_markdown();
        text.push('\n');
        for (place, series) in self.series.iter().enumerate() {
            let on = GivenInput::line(&series.inputs);
            let verdict = series.judged_ratio().zip(series.verdict);
            let verdict = verdict.map(|((found, of), verdict)| {
                format!(": {} of the time of {of}, {verdict}", ratio(found))
            });
            let verdict = verdict.unwrap_or_default();
            let pinned = series.engine.pinned_cores.as_deref();
            let pinned = pinned.map_or_else(String::new, |it| format!(", {}", pinned_text(it)));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{}. {} on {on}{pinned}{verdict}",
                place + 1,
                defuse_line(&series.label)
            );
        }
        if let Some((title, table)) = starts_table(&self.starts()) {
            let _ = write!(text, "\n{title}\n\n{}", table.to_markdown());
        }
        text
    }

    /// Describes the conditions of the measurement in one line.
    pub(super) fn conditions(&self) -> String {
        let cores = match self.cores.as_deref() {
            None | Some("all") => "all cores".to_owned(),
            Some(kind @ ("big" | "little")) => format!("the {kind} cores"),
            Some(list) => format!("cores {list}"),
        };
        let threads = match self.threads {
            None => cores,
            Some(number) => {
                let plural = if number == 1 { "" } else { "s" };
                let cores = self.cores.as_ref().map(|_| format!(" on {cores}"));
                format!("{number} thread{plural}{}", cores.unwrap_or_default())
            }
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
    /// Returns the highest proportional memory, in bytes.
    pub(super) fn highest_pss_bytes(&self) -> Option<u64> {
        let memory = self.proportional_memory.as_ref()?;
        Some(memory.course.highest.pss_bytes)
    }

    fn cells(&self, number: usize) -> [String; 12] {
        let time = |of: fn(&Times) -> f64| {
            let times = self.times.as_ref();
            times.map_or_else(String::new, |times| format_milliseconds(of(times)))
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
            format_milliseconds(self.load_ms),
            format_milliseconds(self.first_run_ms),
            memory(self.peak_memory_bytes),
            memory(self.highest_pss_bytes()),
            self.ratio.as_ref().map_or_else(|| "1".to_owned(), ratio),
        ]
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
