//! The curves of `bench --sustained` as one self-contained HTML page.

use std::fmt::Write as _;

use super::html::escape;
use super::report::machine_lines;
use super::sustained::{SustainedPoint, SustainedReport, SustainedSeries};

const TEMPLATE: &str = include_str!("curves.html");

/// Width and height of a picture, in units of the SVG.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 140.0;

/// A quantity of a curve.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    colour: &'static str,
    value: fn(&SustainedPoint) -> Option<f64>,
}

const QUANTITIES: [Quantity; 4] = [
    Quantity {
        name: "time of a run",
        unit: "ms",
        colour: "var(--mark)",
        value: |point| Some(point.p50_ms),
    },
    Quantity {
        name: "temperature",
        unit: "°C",
        colour: "var(--mid)",
        value: |point| point.sensors.temperature_c,
    },
    Quantity {
        name: "frequency of the fastest cores",
        unit: "MHz",
        colour: "var(--soft)",
        value: |point| {
            point
                .sensors
                .khz
                .iter()
                .flatten()
                .max()
                .map(|khz| megahertz(*khz))
        },
    },
    Quantity {
        name: "battery current",
        unit: "mA",
        colour: "var(--ink)",
        value: |point| point.sensors.battery_current_ma,
    },
];

#[expect(clippy::cast_precision_loss, reason = "a frequency is small")]
fn megahertz(khz: u64) -> f64 {
    khz as f64 / 1000.0
}

/// Renders the page.
pub(super) fn page(report: &SustainedReport) -> String {
    let machines = machine_lines(&report.machine, &report.devices);
    let machines: Vec<String> = machines.iter().map(|text| escape(text)).collect();
    let curves: String = report.series.iter().map(pictures).collect();
    TEMPLATE
        .replace("{{machines}}", &machines.join("<br>"))
        .replace("{{date}}", &escape(&report.date))
        .replace("{{curves}}", &curves)
}

/// Draws a picture for each quantity that the device reports.
fn pictures(series: &SustainedSeries) -> String {
    let mut html = format!("<h2>{}</h2>\n", escape(&series.label));
    for quantity in &QUANTITIES {
        let known = series
            .points
            .iter()
            .filter_map(|point| Some((point.at_s, (quantity.value)(point)?)));
        let known: Vec<(f64, f64)> = known.collect();
        if !known.is_empty() {
            picture(&mut html, quantity, &known);
        }
    }
    html
}

fn picture(html: &mut String, quantity: &Quantity, known: &[(f64, f64)]) {
    let values = || known.iter().map(|(_, value)| *value);
    let (least, most) = (
        values().fold(f64::INFINITY, f64::min),
        values().fold(f64::NEG_INFINITY, f64::max),
    );
    let end = known.last().map_or(1.0, |(at, _)| at.max(1.0));
    // Times begin at zero; other quantities fill the picture.
    let bottom = if quantity.unit == "ms" { 0.0 } else { least };
    let range = (most - bottom).max(f64::MIN_POSITIVE);
    let points: Vec<String> = known
        .iter()
        .map(|(at, value)| {
            let (x, y) = (at / end * WIDTH, (1.0 - (value - bottom) / range) * HEIGHT);
            format!("{x:.1},{y:.1}")
        })
        .collect();
    // Writing to a string cannot fail.
    let _ = writeln!(
        html,
        "<p>{}: {least:.2} to {most:.2} {} in {end:.0} s</p>\n<svg viewBox=\"0 -4 {WIDTH} {}\" role=\"img\" aria-label=\"{}\"><polyline style=\"stroke: {}\" points=\"{}\"/></svg>",
        quantity.name,
        quantity.unit,
        HEIGHT + 8.0,
        quantity.name,
        quantity.colour,
        points.join(" ")
    );
}
