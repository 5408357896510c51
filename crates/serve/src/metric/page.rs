//! Writes a metrics page in one of two formats: Prometheus' text format 0.0.4 or `OpenMetrics` 1.0.
//!
//! Invariant: the formats declare counters and infos differently, but the names of series are the
//! same in both.

use std::fmt::{self, Write as _};

use super::Histogram;

/// The format of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFormat {
    /// Prometheus' text format, version 0.0.4.
    Text,
    /// `OpenMetrics`, version 1.0.0.
    OpenMetrics,
}

/// A value of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricValue {
    /// An integer.
    Whole(u64),
    /// A float.
    Real(f64),
}

/// A page that is being written.
#[derive(Debug)]
pub struct Page {
    format: PageFormat,
    text: String,
}

/// The series of one metric.
#[derive(Debug)]
pub struct Samples<'p> {
    text: &'p mut String,
    name: String,
}

impl PageFormat {
    /// Returns the format that a client prefers in `Accept`; text by default.
    pub fn accepted(accept: Option<&str>) -> Self {
        let mut best = [0_u16; 2];
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut weight, mut is_known) = (1000, true);
            for part in parts {
                let (name, value) = part.split_once('=').unwrap_or((part, ""));
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => weight = thousandths(value.trim()),
                    "version" if media == "application/openmetrics-text" => {
                        is_known = value.trim().trim_matches('"') == "1.0.0";
                    }
                    _ => {}
                }
            }
            let place = match media.as_str() {
                "application/openmetrics-text" if is_known => 1,
                "text/plain" | "text/*" | "*/*" => 0,
                _ => continue,
            };
            best[place] = best[place].max(weight);
        }
        if best[1] > 0 && best[1] >= best[0] {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// Returns the media type of the format.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Parses a weight of `Accept`, in thousandths; an invalid one counts as 1.
fn thousandths(weight: &str) -> u16 {
    let weight: f32 = weight.parse().unwrap_or(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between 0 and 1000"
    )]
    let thousandths = (weight.clamp(0.0, 1.0) * 1000.0) as u16;
    thousandths
}

impl Page {
    /// Creates an empty page.
    pub fn new(format: PageFormat) -> Self {
        Self {
            format,
            text: String::with_capacity(16 << 10),
        }
    }

    /// Adds a metric that only grows; its series end in `_total`.
    pub fn counter(&mut self, name: &str, help: &str) -> Samples<'_> {
        let series = format!("{name}_total");
        let named = match self.format {
            PageFormat::Text => &series,
            PageFormat::OpenMetrics => name,
        };
        Self::head(&mut self.text, named, "counter", help);
        self.samples(series)
    }

    /// Adds a metric that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str) -> Samples<'_> {
        Self::head(&mut self.text, name, "gauge", help);
        self.samples(name.to_owned())
    }

    /// Adds constant information, as labels of a series with the value 1; the series ends in
    /// `_info`.
    pub fn info(&mut self, name: &str, help: &str) -> Samples<'_> {
        let series = format!("{name}_info");
        match self.format {
            PageFormat::Text => Self::head(&mut self.text, &series, "gauge", help),
            PageFormat::OpenMetrics => Self::head(&mut self.text, name, "info", help),
        }
        self.samples(series)
    }

    /// Adds a histogram.
    pub fn histogram(&mut self, name: &str, help: &str) -> Samples<'_> {
        Self::head(&mut self.text, name, "histogram", help);
        self.samples(name.to_owned())
    }

    /// Returns the text.
    pub fn finish(mut self) -> String {
        if self.format == PageFormat::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn head(text: &mut String, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn samples(&mut self, name: String) -> Samples<'_> {
        Samples {
            text: &mut self.text,
            name,
        }
    }
}

impl Samples<'_> {
    /// Adds one series.
    pub fn add(&mut self, labels: &[(&str, &str)], value: impl Into<MetricValue>) -> &mut Self {
        self.line("", labels, None, value.into());
        self
    }

    /// Adds the series of a histogram.
    pub fn add_histogram(&mut self, labels: &[(&str, &str)], histogram: &Histogram) -> &mut Self {
        let mut count = 0;
        for (bound, up_to) in histogram.cumulative() {
            let bound = if bound.is_infinite() {
                "+Inf".to_owned()
            } else {
                format!("{bound:?}")
            };
            count = up_to;
            self.line("_bucket", labels, Some(&bound), MetricValue::Whole(up_to));
        }
        self.line("_sum", labels, None, MetricValue::Real(histogram.sum()));
        self.line("_count", labels, None, MetricValue::Whole(count));
        self
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: &[(&str, &str)],
        bound: Option<&str>,
        value: MetricValue,
    ) {
        let text = &mut *self.text;
        text.push_str(&self.name);
        text.push_str(suffix);
        let all = labels.iter().copied().chain(bound.map(|le| ("le", le)));
        let mut separator = '{';
        for (name, value) in all {
            text.push(separator);
            separator = ',';
            text.push_str(name);
            text.push_str("=\"");
            for character in value.chars() {
                match character {
                    '\\' => text.push_str("\\\\"),
                    '"' => text.push_str("\\\""),
                    '\n' => text.push_str("\\n"),
                    other => text.push(other),
                }
            }
            text.push('"');
        }
        if separator == ',' {
            text.push('}');
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, " {value}");
    }
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for MetricValue {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<f64> for MetricValue {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl fmt::Display for MetricValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Real(value) if value.is_infinite() => f.write_str("+Inf"),
            Self::Real(value) => value.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses_the_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0,\
                          application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            (None, PageFormat::Text),
            (Some("*/*"), PageFormat::Text),
            (Some("text/html, */*;q=0.8"), PageFormat::Text),
            (Some("text/plain; version=0.0.4"), PageFormat::Text),
            (Some(prometheus), PageFormat::OpenMetrics),
            (
                Some("Application/OpenMetrics-Text"),
                PageFormat::OpenMetrics,
            ),
            (Some("application/openmetrics-text;q=0"), PageFormat::Text),
            (
                Some("application/openmetrics-text;version=2.0.0"),
                PageFormat::Text,
            ),
            (
                Some("application/openmetrics-text;q=0.3, text/plain;q=0.4"),
                PageFormat::Text,
            ),
            (
                Some("application/openmetrics-text;q=x"),
                PageFormat::OpenMetrics,
            ),
        ] {
            assert_eq!(PageFormat::accepted(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn each_format_has_its_own_words() {
        let write = |format| {
            let mut page = Page::new(format);
            let labels = [("service", "a\"b\\c\nd"), ("kind", "x")];
            page.counter("done", "Done.").add(&labels, 3_u64);
            page.info("build", "Build.").add(&[("version", "1")], 1_u64);
            page.gauge("room", "Room.").add(&[], 0.5);
            let histogram = Histogram::counts();
            histogram.number(2);
            histogram.number(1000);
            page.histogram("size", "Size.")
                .add_histogram(&[], &histogram);
            page.finish()
        };
        let text = write(PageFormat::Text);
        assert!(text.starts_with(
            "# HELP done_total Done.\n# TYPE done_total counter\n\
             done_total{service=\"a\\\"b\\\\c\\nd\",kind=\"x\"} 3\n\
             # HELP build_info Build.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n\
             # HELP room Room.\n# TYPE room gauge\nroom 0.5\n"
        ));
        assert!(text.contains("size_bucket{le=\"2.0\"} 1\n"));
        assert!(text.ends_with("size_bucket{le=\"+Inf\"} 2\nsize_sum 1002\nsize_count 2\n"));
        let open = write(PageFormat::OpenMetrics);
        assert!(open.contains("# TYPE done counter\ndone_total{"));
        assert!(open.contains("# TYPE build info\nbuild_info{"));
        assert!(open.ends_with("# EOF\n"));
    }
}
