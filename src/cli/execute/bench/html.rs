//! A benchmark as one self-contained HTML page with a strip plot.

use std::fmt::Write as _;

use super::super::sides::{GivenInput, pinned_text};
use super::super::times::format_milliseconds;
use super::report::{BenchReport, SeriesReport, memory, ratio};
use super::starts::starts_html;
use pkgtool_engine::runtime::measure::Series;

const TEMPLATE: &str = include_str!("page.html");

/// Width of the plot and height of a series in it, in units of the SVG.
const PLOT_WIDTH: f64 = 960.0;
const ROW_HEIGHT: f64 = 74.0;
const MARGIN: f64 = 14.0;
/// Maximum number of operators per series.
const MAX_BARS: usize = 30;
/// Maximum number of runs that are drawn per series.
const MAX_DOTS: usize = 1500;

/// Renders the page. `series` are the measurements of the report's series.
pub(super) fn page(report: &BenchReport, series: &[Series]) -> String {
    let rows: String = report.series.iter().map(row).collect();
    TEMPLATE
        .replace("{{machine}}", &escape(&report.machine.to_string()))
        .replace("{{conditions}}", &escape(&report.conditions()))
        .replace("{{date}}", &escape(&report.date))
        .replace("{{noise}}", &escape(&report.noise_figures()))
        .replace("{{warning}}", &warning(report))
        .replace("{{rows}}", &rows)
        .replace("{{plot}}", &plot(report, series))
        .replace("{{starts}}", &starts_html(&report.starts()))
        .replace("{{profiles}}", &profiles(report))
}

fn row(series: &SeriesReport) -> String {
    let inputs = GivenInput::line(&series.inputs);
    let pinned = series.engine.pinned_cores.as_deref();
    let pinned = pinned.map_or_else(String::new, |cores| format!(", {}", pinned_text(cores)));
    let mut cells = vec![format!(
        "{}<br><small>on {}{pinned}</small>",
        escape(&series.label),
        escape(&inputs)
    )];
    match &series.times {
        Some(times) => {
            let figures = [
                times.p50_ms,
                times.p90_ms,
                times.p99_ms,
                times.min_ms,
                times.mean_ms,
            ];
            cells.extend(figures.map(format_milliseconds));
            cells.push(format!("{:.1}", times.throughput_per_s));
        }
        None => cells.extend(std::iter::repeat_n(String::new(), 6)),
    }
    cells.push(format_milliseconds(series.load_ms));
    cells.push(format_milliseconds(series.first_run_ms));
    cells.push(memory(series.peak_memory_bytes));
    cells.push(memory(series.highest_pss_bytes()));
    cells.push(series.ratio.as_ref().map_or_else(|| "1".to_owned(), ratio));
    format!("<tr><td>{}</td></tr>\n", cells.join("</td><td>"))
}

fn warning(report: &BenchReport) -> String {
    report.noise().map_or_else(String::new, |noise| {
        format!("<p class=\"warning\">{}</p>", escape(&noise))
    })
}

/// Draws a bar for the time of each operator of each profiled series, on a common scale.
fn profiles(report: &BenchReport) -> String {
    let profiled = || {
        let series = report.series.iter();
        series.filter_map(|one| Some((one.label.as_str(), one.profile.as_ref()?)))
    };
    let rows = profiled().flat_map(|(_, profile)| &profile.operators);
    let longest = rows.map(|row| row.time_ms).fold(0.0, f64::max);
    let mut html = String::new();
    for (label, profile) in profiled() {
        let _ = write!(
            html,
            "<h2>{}</h2>\n<table class=\"profile\">\n<thead><tr><th>operator</th><th>provider</th><th>nodes</th><th>time</th><th>share</th><th></th></tr></thead>\n<tbody>\n",
            escape(label)
        );
        for row in profile.operators.iter().take(MAX_BARS) {
            let [operator, provider, nodes, time, share, _] = row.cells();
            let width = if longest > 0.0 {
                row.time_ms / longest * 100.0
            } else {
                0.0
            };
            let _ = writeln!(
                html,
                "<tr><td>{}</td><td>{}</td><td>{nodes}</td><td>{time}</td><td>{share}</td><td class=\"track\"><div class=\"bar\" style=\"width:{width:.1}%\"></div></td></tr>",
                escape(&operator),
                escape(&provider)
            );
        }
        html.push_str("</tbody>\n</table>\n");
        for remark in profile.remarks() {
            let _ = writeln!(html, "<p>{}</p>", escape(&remark));
        }
    }
    html
}

/// Draws a strip of dots for each series, on a common axis that begins at zero.
fn plot(report: &BenchReport, series: &[Series]) -> String {
    // The axis ends at the slowest series without its outliers.
    let ends = report.series.iter().filter_map(|one| one.times.as_ref());
    let edge = ends.map(|times| times.p99_ms).fold(0.0, f64::max);
    if edge <= 0.0 {
        return String::new();
    }
    let step = round_up_step(edge / 6.0);
    let right = (edge / step).ceil() * step;
    let x = |time: f64| MARGIN + (time.min(right) / right) * (PLOT_WIDTH - 2.0 * MARGIN);
    let height = ROW_HEIGHT * count(series.len()) + 34.0;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {PLOT_WIDTH} {height}\" role=\"img\" aria-label=\"Times of all runs\">\n"
    );
    // Writing to a string cannot fail.
    let _ = axis(&mut svg, step, right, height, x);
    for (place, (one, times_of)) in report.series.iter().zip(series).enumerate() {
        let top = ROW_HEIGHT * count(place);
        let _ = strip(&mut svg, one, times_of, top, x);
    }
    svg.push_str("</svg>");
    svg
}

fn axis(
    svg: &mut String,
    step: f64,
    right: f64,
    height: f64,
    x: impl Fn(f64) -> f64,
) -> std::fmt::Result {
    let bottom = height - 28.0;
    let mut time = 0.0;
    while time <= right + step / 2.0 {
        let at = x(time);
        // The last label ends at its line, because the picture ends soon after.
        let anchor = if time + step / 2.0 > right {
            "end"
        } else {
            "middle"
        };
        writeln!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{bottom:.1}\"/><text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            bottom + 18.0,
            if time == 0.0 {
                "0".to_owned()
            } else {
                format_milliseconds(time)
            }
        )?;
        time += step;
    }
    Ok(())
}

fn strip(
    svg: &mut String,
    report: &SeriesReport,
    series: &Series,
    top: f64,
    x: impl Fn(f64) -> f64,
) -> std::fmt::Result {
    writeln!(
        svg,
        "<text x=\"{MARGIN}\" y=\"{:.1}\">{}</text>",
        top + 18.0,
        escape(&report.label)
    )?;
    let times: Vec<f64> = times(series).collect();
    let every = times.len().div_ceil(MAX_DOTS).max(1);
    for (place, time) in times.iter().step_by(every).enumerate() {
        // Spread the dots over the height of the strip. The order looks random but is reproducible.
        let lift = count(place * 7919 % 31);
        writeln!(
            svg,
            "<circle class=\"run\" r=\"2.5\" cx=\"{:.1}\" cy=\"{:.1}\"/>",
            x(*time),
            top + 30.0 + lift
        )?;
    }
    if let Some(times) = &report.times {
        let at = x(times.p50_ms);
        writeln!(
            svg,
            "<line class=\"median\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
            top + 26.0,
            top + 66.0
        )?;
    }
    Ok(())
}

fn times(series: &Series) -> impl Iterator<Item = f64> + '_ {
    series.times().map(|time| time.as_secs_f64() * 1000.0)
}

/// Returns the smallest number above `least` that is 1, 2 or 5 times a power of ten.
fn round_up_step(least: f64) -> f64 {
    let power = 10.0_f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let factor = factors.into_iter().find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

#[expect(clippy::cast_precision_loss, reason = "the number is small")]
fn count(number: usize) -> f64 {
    number as f64
}

/// Escapes text for HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (least, expected) in [(0.3, 0.5), (1.0, 1.0), (13.0, 20.0), (0.06, 0.1)] {
            assert!((round_up_step(least) - expected).abs() < 1e-12, "{least}");
        }
    }

    #[test]
    fn names_cannot_write_html() {
        assert_eq!(escape("<script>\"&"), "&lt;script&gt;&quot;&amp;");
    }
}
