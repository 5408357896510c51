//! Whether a dataset can be trained on, and what is in it.
//!
//! Invariant: every fault that is told has its line; no more are kept than a reader looks at.

use std::collections::BTreeMap;
use std::io::Read;

use super::rows::{Fault, RowError, Rows};
use super::{Bounds, Holds, MAX_LABELS, Summary};

/// Most faults that are told.
const MOST_FAULTS: usize = 10;

/// Why a dataset is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    /// It is wrong: at least one fault, in the order of lines.
    #[error("{}", told(.faults, *.more))]
    Wrong {
        /// The first faults.
        faults: Vec<Fault>,
        /// How many more were found.
        more: u64,
    },
    /// Its bytes could not be had.
    #[error("the dataset could not be read: {0}")]
    Read(std::io::Error),
}

/// Reads a dataset to its end.
pub fn check(reader: impl Read, bounds: Bounds) -> Result<Summary, Rejected> {
    let mut check = Check::default();
    let rows = match Rows::new(reader, bounds) {
        Ok(rows) => rows,
        Err(error) => {
            check.note(error)?;
            return Err(check.rejected());
        }
    };
    let format = rows.format();
    for row in rows {
        match row {
            Ok(row) => check.take(row.line, row.holds, row.label),
            Err(error) => check.note(error)?,
        }
    }
    if check.faults.is_empty() {
        check.faults.extend(of_labels(&check.labels, check.rows));
    }
    match check.holds {
        Some((_, holds)) if check.faults.is_empty() => Ok(Summary {
            format,
            holds,
            rows: check.rows,
            labels: check.labels,
        }),
        _ => Err(check.rejected()),
    }
}

/// What is known so far.
#[derive(Default)]
struct Check {
    rows: u64,
    labels: BTreeMap<String, u64>,
    /// What the first row holds, and its line.
    holds: Option<(u64, Holds)>,
    faults: Vec<Fault>,
    more: u64,
}

impl Check {
    fn take(&mut self, line: u64, holds: Holds, label: String) {
        let (first, known) = *self.holds.get_or_insert((line, holds));
        if known != holds {
            self.add(Fault::at(
                line,
                format!(
                    "has `{}`, and line {first} has `{}`; a dataset is of texts or of pictures",
                    holds.key(),
                    known.key()
                ),
            ));
            return;
        }
        self.rows += 1;
        if let Some(count) = self.labels.get_mut(&label) {
            *count += 1;
        } else if self.labels.len() < MAX_LABELS {
            self.labels.insert(label, 1);
        } else {
            self.add(Fault::at(
                line,
                format!("is of one label more than the {MAX_LABELS} that are taken"),
            ));
        }
    }

    fn note(&mut self, error: RowError) -> Result<(), Rejected> {
        match error {
            RowError::Row(fault) | RowError::End(fault) => self.add(fault),
            RowError::Read(error) => return Err(Rejected::Read(error)),
        }
        Ok(())
    }

    fn add(&mut self, fault: Fault) {
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(fault);
        } else {
            self.more += 1;
        }
    }

    fn rejected(self) -> Rejected {
        Rejected::Wrong {
            faults: self.faults,
            more: self.more,
        }
    }
}

/// What is wrong with rows that are each right.
fn of_labels(labels: &BTreeMap<String, u64>, rows: u64) -> Option<Fault> {
    match (rows, labels.len()) {
        (0, _) => Some(Fault::of_all(
            "there is no row; a dataset has JSON lines such as {\"text\": \"…\", \"label\": \"…\"}, or \
             CSV with the columns `text` and `label`",
        )),
        (1, _) => Some(Fault::of_all(
            "there is one row; a classifier learns from rows of at least two labels",
        )),
        (rows, 1) => {
            let label = labels.keys().next().map_or("", String::as_str);
            Some(Fault::of_all(format!(
                "all {rows} rows have the label `{label}`; a classifier learns from rows of at least \
                 two labels"
            )))
        }
        _ => None,
    }
}

fn told(faults: &[Fault], more: u64) -> String {
    let mut lines: Vec<String> = faults.iter().map(Fault::to_string).collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("; ")
}
