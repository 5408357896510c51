//! Cold and warm starts in the report of a benchmark.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::super::times::format_milliseconds;
use pkgtool_base::diagnostic::{Align, TextTable};
use pkgtool_engine::runtime::restart::StartParts;
use pkgtool_engine::tensor::limit::format_bytes;

/// The starts of a model.
#[derive(Debug, Serialize)]
pub(super) struct StartsReport {
    /// Number of processes of each kind.
    processes: usize,
    /// Size of the model's files, in bytes.
    model_files_bytes: Option<u64>,
    /// Without the model's files in the system's cache.
    cold: StartMedians,
    /// With them.
    warm: StartMedians,
}

/// Medians of several starts. Each is taken alone, so the parts need not add up.
#[derive(Debug, Serialize)]
struct StartMedians {
    /// From the start of the program until its process can load a model.
    process_ms: Option<f64>,
    load_ms: Option<f64>,
    first_run_ms: Option<f64>,
    /// From the start of the program until the first answer.
    total_ms: Option<f64>,
    /// Bytes that loading and the first run read from storage; absent if the system does not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_read_bytes: Option<u64>,
}

impl StartMedians {
    fn of(starts: &[StartParts]) -> Self {
        let milliseconds = |part: fn(&StartParts) -> Option<Duration>| {
            let times = starts.iter().filter_map(part);
            Some(median(times.collect())?.as_secs_f64() * 1000.0)
        };
        let read = starts.iter().filter_map(|start| start.storage_read_bytes);
        Self {
            process_ms: milliseconds(|start| start.process),
            load_ms: milliseconds(|start| Some(start.load)),
            first_run_ms: milliseconds(|start| Some(start.first_run)),
            total_ms: milliseconds(|start| Some(start.process? + start.load + start.first_run)),
            storage_read_bytes: median(read.collect()),
        }
    }

    fn cells(&self, number: usize, kind: &str) -> [String; 6] {
        let time = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), format_milliseconds);
        [
            format!("{number} {kind}"),
            time(self.process_ms),
            time(self.load_ms),
            time(self.first_run_ms),
            time(self.total_ms),
            self.storage_read_bytes
                .map_or_else(|| "-".to_owned(), format_bytes),
        ]
    }
}

/// Returns the middle value; of an even number, the lower one.
fn median<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

impl StartsReport {
    /// Returns the report of these starts; `None` without any.
    pub(super) fn of(cold: &[StartParts], warm: &[StartParts]) -> Option<Self> {
        Some(Self {
            processes: cold.len(),
            model_files_bytes: cold.first()?.dropped_bytes,
            cold: StartMedians::of(cold),
            warm: StartMedians::of(warm),
        })
    }

    /// Returns why the cold starts were perhaps not cold.
    fn doubt(&self) -> Option<String> {
        let size = self.model_files_bytes.unwrap_or(0);
        match self.cold.storage_read_bytes {
            None => Some("the system does not report reads from storage: nothing shows that the cold starts were cold".to_owned()),
            Some(read) if read < size / 2 => Some(format!(
                "the cold starts read only {} of {} from storage: the rest was still in the cache, or was never read",
                format_bytes(read),
                format_bytes(size)
            )),
            Some(_) => None,
        }
    }
}

/// The starts of a model, with the model's number in the table.
pub(super) type NumberedStarts<'s> = (usize, &'s StartsReport);

/// Returns the table of starts and the remarks on it; empty without starts.
pub(super) fn starts_text(all: &[NumberedStarts<'_>]) -> String {
    let Some((title, table)) = starts_table(all) else {
        return String::new();
    };
    let mut text = format!("{title}\n{table}");
    for (number, doubt) in doubts(all) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{number}  {doubt}");
    }
    text
}

/// Returns the title and the table of starts as parts of a page; empty without starts.
pub(super) fn starts_html(all: &[NumberedStarts<'_>]) -> String {
    let rows = starts_rows(all);
    if rows.is_empty() {
        return String::new();
    }
    let row = |cells: &[String; 6]| format!("<tr><td>{}</td></tr>\n", cells.join("</td><td>"));
    let head = HEAD.join("</th><th>");
    let rows: String = rows.iter().map(row).collect();
    let title = starts_title(all);
    let mut html = format!(
        "<h2>{title}</h2>\n<table>\n<thead><tr><th>{head}</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"
    );
    for (number, doubt) in doubts(all) {
        let _ = writeln!(html, "<p class=\"warning\">{number}: {doubt}</p>");
    }
    html
}

/// Returns the title and the table of starts; `None` without starts.
pub(super) fn starts_table(all: &[NumberedStarts<'_>]) -> Option<(String, TextTable)> {
    let rows = starts_rows(all);
    if rows.is_empty() {
        return None;
    }
    let mut table = TextTable::new(HEAD.map(|_| Align::Right));
    table.row(HEAD);
    for row in rows {
        table.row(row);
    }
    Some((starts_title(all), table))
}

const HEAD: [&str; 6] = ["", "process", "load", "first run", "total", "from storage"];

fn starts_title(all: &[NumberedStarts<'_>]) -> String {
    let processes = all.first().map_or(0, |(_, starts)| starts.processes);
    let plural = if processes == 1 { "" } else { "es" };
    format!("from a new process to the first answer, medians of {processes} process{plural} each")
}

fn starts_rows(all: &[NumberedStarts<'_>]) -> Vec<[String; 6]> {
    let rows = all.iter().flat_map(|(number, starts)| {
        [
            starts.cold.cells(*number, "cold"),
            starts.warm.cells(*number, "warm"),
        ]
    });
    rows.collect()
}

/// Returns the doubts about cold starts, with the numbers of their models.
fn doubts(all: &[NumberedStarts<'_>]) -> Vec<(usize, String)> {
    let doubts = all.iter();
    let doubts = doubts.filter_map(|(number, starts)| Some((*number, starts.doubt()?)));
    doubts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(milliseconds: u64, read: Option<u64>) -> StartParts {
        StartParts {
            process: Some(Duration::from_millis(5)),
            load: Duration::from_millis(milliseconds),
            first_run: Duration::from_millis(1),
            storage_read_bytes: read,
            dropped_bytes: Some(10 << 20),
        }
    }

    #[test]
    fn starts_have_medians() {
        let cold = [
            start(30, Some(9 << 20)),
            start(90, Some(10 << 20)),
            start(20, None),
        ];
        let report = StartsReport::of(&cold, &[start(2, Some(0))]).expect("there are starts");
        assert_eq!(report.processes, 3);
        assert_eq!(report.cold.load_ms, Some(30.0));
        assert_eq!(report.cold.total_ms, Some(36.0));
        assert_eq!(report.cold.storage_read_bytes, Some(9 << 20));
        assert_eq!(report.doubt(), None);
        assert!(StartsReport::of(&[], &[]).is_none());
    }

    #[test]
    fn doubtful_starts_are_named() {
        let doubt = |read| {
            StartsReport::of(&[start(1, read)], &[])
                .expect("a start")
                .doubt()
        };
        let text = doubt(Some(1 << 20)).expect("most was not read");
        assert!(text.contains("only 1 MiB of 10 MiB"), "{text}");
        assert!(
            doubt(None)
                .expect("nothing is known")
                .contains("does not report")
        );
        assert_eq!(doubt(Some(6 << 20)), None);
    }
}
