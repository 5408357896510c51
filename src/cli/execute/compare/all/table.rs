//! The comparison of all variants as a table: as text for people and as Markdown for model cards.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::super::figures::{FIGURES, format_figures};
use super::super::report::ComparisonReport;
use super::document::{ComparisonDocument, ComparisonRow, RowOutcome};
use crate::cli::report::CommandReport;
use pkgtool_base::diagnostic::{Align, TextTable};
use pkgtool_base::source::text::defuse_line;

/// Maximum number of remarks per row.
const MAX_REMARKS: usize = 4;

impl CommandReport for ComparisonDocument {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let reference = self.rows.iter().find_map(ComparisonRow::report);
        let reference = reference.map_or(&self.reference, |report| &report.a.label);
        writeln!(text, "reference: {}", defuse_line(reference))?;
        if let Some(reading) = self.reading() {
            writeln!(text, "  {reading}")?;
        }
        write!(text, "{}", self.table(""))?;
        for (line, places) in self.remarks() {
            writeln!(text, "{}: {line}", join_numbers(&places))?;
        }
        for (place, row) in self.rows.iter().enumerate() {
            for line in row_remarks(row) {
                writeln!(text, "{}: {line}", place + 1)?;
            }
        }
        writeln!(text, "{}", self.verdict())
    }

    fn document(&self) -> impl Serialize {
        self
    }
}

impl ComparisonDocument {
    /// Returns the Markdown table with a final newline.
    pub(super) fn to_markdown(&self) -> String {
        let escaped = |text: &str| defuse_line(text).replace('|', "\\|");
        let reference = self.rows.iter().find_map(ComparisonRow::report);
        let reference = reference.map_or(&self.reference, |report| &report.a.label);
        let reading = self.reading();
        let reading = reading.map_or_else(String::new, |reading| format!(" ({reading})"));
        let mut text = format!("Compared with {}{reading}:\n\n", escaped(reference));
        text += &self.table("–").to_markdown();
        text.push('\n');
        for (remark, places) in self.remarks() {
            let _ = writeln!(text, "- {}: {}", join_numbers(&places), escaped(&remark));
        }
        for (place, row) in self.rows.iter().enumerate() {
            for line in row_remarks(row) {
                let _ = writeln!(text, "- {}: {}", place + 1, escaped(&line));
            }
        }
        let _ = writeln!(text, "\n{}.", self.verdict());
        text
    }

    /// Returns the rows. `nothing` stands for a missing figure.
    fn table(&self, nothing: &str) -> TextTable {
        let align = |name| {
            if is_number(name) {
                Align::Right
            } else {
                Align::Left
            }
        };
        let mut table = TextTable::new(head().map(align)).indented();
        table.row(head());
        for (place, row) in self.rows.iter().enumerate() {
            let cells = cells(place + 1, row, nothing).into_iter();
            table.row(cells.map(|cell| defuse_line(&cell)));
        }
        table
    }

    /// Returns the remark about an engine's own interpretation of the reference.
    fn reading(&self) -> Option<&str> {
        let reference = self.rows.iter().find_map(ComparisonRow::report)?;
        reference.a.engine.reading.as_deref()
    }

    /// Returns remarks that several rows share, about the interpretation of programs and the shapes
    /// of inputs. They are in the order of the rows, each with its row numbers.
    fn remarks(&self) -> Vec<(String, Vec<usize>)> {
        let mut order = Vec::new();
        let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut add = |line: String, place: usize| {
            if !places.contains_key(&line) {
                order.push(line.clone());
            }
            places.entry(line).or_default().push(place);
        };
        let reports = self.rows.iter().enumerate();
        let reports: Vec<(usize, &ComparisonReport)> = reports
            .filter_map(|(place, row)| Some((place + 1, row.report()?)))
            .collect();
        for (place, report) in &reports {
            if let Some(reading) = &report.b.engine.reading {
                add(reading.clone(), *place);
            }
        }
        for (place, report) in &reports {
            add(format!("on {}", report.shape_lines(1).join("; ")), *place);
        }
        let found = order.into_iter();
        found
            .map(|line| {
                let of = places.remove(&line).unwrap_or_default();
                (line, of)
            })
            .collect()
    }

    fn verdict(&self) -> String {
        let count = |is: fn(&ComparisonRow) -> bool| self.rows.iter().filter(|row| is(row)).count();
        let agree = count(|row| row.report().is_some_and(|report| report.agrees));
        let differ = count(|row| row.report().is_some_and(|report| !report.agrees));
        let failed = count(|row| matches!(row.outcome, RowOutcome::Failed(_)));
        let skipped = count(|row| matches!(row.outcome, RowOutcome::Skipped(_)));
        let mut words = vec![format!("{agree} agree")];
        for (number, what) in [
            (differ, "differ"),
            (failed, "failed"),
            (skipped, "not compared"),
        ] {
            if number > 0 {
                words.push(format!("{number} {what}"));
            }
        }
        words.join(", ")
    }
}

fn head() -> impl Iterator<Item = &'static str> {
    let first = ["#", "variant", "part", "on", "sets"].into_iter();
    first.chain(FIGURES).chain(["verdict"])
}

/// Returns whether a column holds numbers.
fn is_number(name: &str) -> bool {
    name == "#" || name == "sets" || FIGURES.contains(&name)
}

/// Returns the cells of a row. `nothing` stands for a missing figure.
fn cells(place: usize, row: &ComparisonRow, nothing: &str) -> Vec<String> {
    let report = row.report();
    let absent = || nothing.to_owned();
    let worst = row.worst.as_ref();
    let worst = worst.map_or_else(|| FIGURES.map(|_| absent()), format_figures);
    let on = report.map_or_else(
        || row.engine().map_or_else(absent, str::to_owned),
        |report| report.b.engine.on(),
    );
    let sets = report.map_or_else(absent, |report| report.compared_cases().to_string());
    let verdict = match &row.outcome {
        RowOutcome::Compared(report) if report.agrees => {
            format!("agrees ({})", report.tolerance_text())
        }
        RowOutcome::Compared(report) => format!("differs ({})", report.tolerance_text()),
        RowOutcome::Failed(_) => "failed".to_owned(),
        RowOutcome::Skipped(_) => "not compared".to_owned(),
    };
    let mut cells = vec![
        place.to_string(),
        defuse_line(&row.label),
        defuse_line(&row.part),
        on,
        sets,
    ];
    cells.extend(worst);
    cells.push(verdict);
    cells
}

/// Returns the remarks about a single row.
fn row_remarks(row: &ComparisonRow) -> Vec<String> {
    let mut lines = match &row.outcome {
        RowOutcome::Compared(report) => report.problem_lines(),
        RowOutcome::Failed(reason) => vec![defuse_line(reason)],
        RowOutcome::Skipped(reason) => vec![format!("not compared: {}", defuse_line(reason))],
    };
    let more = lines.len().saturating_sub(MAX_REMARKS);
    if more > 0 {
        lines.truncate(MAX_REMARKS);
        lines.push(format!("and {more} more"));
    }
    lines
}

/// Formats a list of numbers, such as `1, 2, 5`.
fn join_numbers(places: &[usize]) -> String {
    let places: Vec<String> = places.iter().map(usize::to_string).collect();
    places.join(", ")
}
