//! The report of `bench --sustained`: how the time of a model changes while the device gets warm.

use std::fmt::Write as _;
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use serde::Serialize;

use super::super::sides::{ExecutionSide, ExecutionSideEngine, pinned_text};
use super::super::times::format_milliseconds;
use super::report::{MeasuredDevice, machine_lines};
use crate::cli::report::CommandReport;
use pkgtool_base::diagnostic::{Align, TextTable};
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::runtime::cores::CoreChoice;
use pkgtool_engine::runtime::device::describe::SensorReading;
use pkgtool_engine::runtime::machine::Machine;
use pkgtool_engine::runtime::statistics::Times;
use pkgtool_engine::runtime::target::Started;

/// A time this much longer than the first one counts as throttled, if as many points in a row are.
const THROTTLED: f64 = 1.1;
const POINTS_IN_A_ROW: usize = 3;

/// A sustained benchmark. Version 1 of the document; later versions only add fields. The names of fields include their
/// units.
#[derive(Debug, Serialize)]
pub(super) struct SustainedReport {
    pub(super) version: u32,
    pub(super) tool_version: &'static str,
    /// When the benchmark ended, in UTC.
    pub(super) date: String,
    /// The machine that ran the benchmark: the first device, if there are any.
    pub(super) machine: Machine,
    /// The devices, in the order of the command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) devices: Vec<MeasuredDevice>,
    pub(super) threads: Option<u16>,
    /// The choice of cores, as on the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<String>,
    /// Duration of each model, in seconds.
    pub(super) seconds: f64,
    /// The models, the fastest at the end first.
    pub(super) series: Vec<SustainedSeries>,
}

/// A model that ran without a pause.
#[derive(Debug, Serialize)]
pub(super) struct SustainedSeries {
    pub(super) label: String,
    #[serde(flatten)]
    pub(super) engine: ExecutionSideEngine,
    /// Median time of the first tenth of the points.
    pub(super) first_ms: Option<f64>,
    /// Median time of the last quarter of the points.
    pub(super) sustained_ms: Option<f64>,
    /// When the time grew by a tenth for good.
    pub(super) throttled_after_s: Option<f64>,
    /// The highest temperature, and its sensor.
    pub(super) hottest_c: Option<f64>,
    sensor: Option<String>,
    /// Energy from the battery per run, if the device reports its current.
    pub(super) energy_per_run_mj: Option<f64>,
    pub(super) points: Vec<SustainedPoint>,
}

/// A part of a curve.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SustainedPoint {
    /// When it began.
    pub(super) at_s: f64,
    runs: usize,
    /// Time of all its runs.
    busy_s: f64,
    pub(super) p50_ms: f64,
    /// The sensors at its end.
    #[serde(flatten)]
    pub(super) sensors: SensorReading,
}

impl SustainedPoint {
    /// Creates a point from the times of its runs.
    pub(super) fn new(at: Duration, times: &Times, sensors: SensorReading) -> Self {
        Self {
            at_s: at.as_secs_f64(),
            runs: times.runs,
            busy_s: if times.throughput_per_s > 0.0 {
                count(times.runs) / times.throughput_per_s
            } else {
                0.0
            },
            p50_ms: times.p50_ms,
            sensors,
        }
    }
}

impl SustainedSeries {
    /// Creates the report of a model from its curve.
    pub(super) fn of(side: &ExecutionSide, started: &Started, points: Vec<SustainedPoint>) -> Self {
        let many = points.len();
        let first = median(&points[..many.div_ceil(10)]);
        let sustained = median(&points[many - many.div_ceil(4)..]);
        let hottest = points
            .iter()
            .filter_map(|point| Some((point.sensors.temperature_c?, point.sensors.sensor.clone())));
        let hottest = hottest.max_by(|(a, _), (b, _)| a.total_cmp(b));
        Self {
            label: side.label(started.candidate),
            engine: ExecutionSideEngine::of(side, started),
            first_ms: first,
            sustained_ms: sustained,
            throttled_after_s: first.and_then(|first| throttled_after(&points, first)),
            hottest_c: hottest.as_ref().map(|(degrees, _)| *degrees),
            sensor: hottest.and_then(|(_, sensor)| sensor),
            energy_per_run_mj: energy_per_run(&points),
            points,
        }
    }
}

/// Returns when the times became longer and stayed so for some points.
fn throttled_after(points: &[SustainedPoint], first: f64) -> Option<f64> {
    let is_slow = |point: &SustainedPoint| point.p50_ms > first * THROTTLED;
    let mut windows = points.windows(POINTS_IN_A_ROW);
    let slow = windows.find(|window| window.iter().all(is_slow))?;
    Some(slow[0].at_s)
}

/// Returns the energy of a run in millijoules: milliwatts times seconds.
fn energy_per_run(points: &[SustainedPoint]) -> Option<f64> {
    let known = points
        .iter()
        .filter_map(|point| Some((point, point.sensors.power_mw?)));
    let (energy, runs) = known.fold((0.0, 0), |(energy, runs), (point, power)| {
        (energy + power * point.busy_s, runs + point.runs)
    });
    (runs > 0).then(|| energy / count(runs))
}

fn median(points: &[SustainedPoint]) -> Option<f64> {
    let mut times: Vec<f64> = points.iter().map(|point| point.p50_ms).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

#[expect(clippy::cast_precision_loss, reason = "a number of runs")]
fn count(runs: usize) -> f64 {
    runs as f64
}

impl SustainedReport {
    /// Creates the report, with the models ranked by their times at the end.
    pub(super) fn new(
        machine: Machine,
        devices: Vec<MeasuredDevice>,
        (threads, cores): (Option<u16>, Option<&CoreChoice>),
        time: Duration,
        mut series: Vec<SustainedSeries>,
    ) -> Self {
        let last = |one: &SustainedSeries| one.sustained_ms.unwrap_or(f64::INFINITY);
        series.sort_by(|a, b| last(a).total_cmp(&last(b)));
        Self {
            version: 1,
            tool_version: env!("CARGO_PKG_VERSION"),
            date: Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true),
            machine,
            devices,
            threads,
            cores: cores.map(ToString::to_string),
            seconds: time.as_secs_f64(),
            series,
        }
    }

    pub(super) fn table(&self) -> TextTable {
        let head = [
            "",
            "first",
            "sustained",
            "change",
            "throttled",
            "hottest",
            "energy/run",
        ];
        let mut table = TextTable::new(head.map(|_| Align::Right));
        table.row(head);
        for (place, one) in self.series.iter().enumerate() {
            let change = one.first_ms.zip(one.sustained_ms);
            let change =
                change.map(|(first, last)| format!("{:+.0} %", (last / first - 1.0) * 100.0));
            let throttled = one.throttled_after_s.map(|at| format!("after {at:.0} s"));
            let cells = [
                Some((place + 1).to_string()),
                one.first_ms.map(format_milliseconds),
                one.sustained_ms.map(format_milliseconds),
                change,
                throttled.or_else(|| Some("no".to_owned())),
                one.hottest_c.map(|degrees| format!("{degrees:.1} °C")),
                one.energy_per_run_mj
                    .map(|energy| format!("{energy:.2} mJ")),
            ];
            table.row(cells.map(|cell| cell.unwrap_or_else(|| "–".to_owned())));
        }
        table
    }
}

impl CommandReport for SustainedReport {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        for line in machine_lines(&self.machine, &self.devices) {
            writeln!(text, "{line}")?;
        }
        writeln!(
            text,
            "{} s each without a pause; the fastest at the end first",
            self.seconds
        )?;
        for (place, one) in self.series.iter().enumerate() {
            writeln!(text, "{}  {}", place + 1, defuse_line(&one.label))?;
            if let Some(cores) = &one.engine.pinned_cores {
                writeln!(text, "   {}", pinned_text(cores))?;
            }
        }
        write!(text, "{}", self.table())
    }

    fn document(&self) -> impl Serialize {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(times: &[f64], power: Option<f64>) -> Vec<SustainedPoint> {
        let points = times
            .iter()
            .enumerate()
            .map(|(place, &time)| SustainedPoint {
                at_s: count(place),
                runs: 10,
                busy_s: 1.0,
                p50_ms: time,
                sensors: SensorReading {
                    power_mw: power,
                    ..SensorReading::default()
                },
            });
        points.collect()
    }

    #[test]
    fn throttling_begins_where_times_stay_longer() {
        let steady = points(&[1.0, 1.05, 1.2, 1.0, 1.0, 1.0, 1.02], None);
        assert_eq!(throttled_after(&steady, 1.0), None);
        let slow = points(&[1.0, 1.3, 1.0, 1.2, 1.3, 1.4, 1.4], None);
        assert_eq!(throttled_after(&slow, 1.0), Some(3.0));
        assert_eq!(throttled_after(&[], 1.0), None);
    }

    #[test]
    fn energy_is_power_by_time() {
        let known = points(&[1.0, 1.0], Some(500.0));
        assert_eq!(energy_per_run(&known), Some(50.0));
        assert_eq!(energy_per_run(&points(&[1.0], None)), None);
        assert_eq!(median(&points(&[3.0, 1.0, 2.0], None)), Some(2.0));
    }
}
