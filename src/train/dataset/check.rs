//! Checks that a dataset is suitable for training and summarizes it.
//!
//! Invariant: every reported fault of a row has its line number, and the number of reported faults
//! is bounded.

use std::collections::BTreeMap;
use std::io::Read;

use super::rows::{Fault, RowError, Rows};
use super::{Bounds, Holds, MAX_LABELS, Summary};

/// Maximum number of reported faults.
const MOST_FAULTS: usize = 10;

/// Reasons to reject a dataset.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    /// The dataset has faults: at least one, in the order of lines.
    #[error("{}", told(.faults, *.more))]
    Wrong {
        /// The first faults.
        faults: Vec<Fault>,
        /// Number of further faults.
        more: u64,
    },
    /// The bytes could not be read.
    #[error("cannot read the dataset: {0}")]
    Read(std::io::Error),
}

/// Reads and checks a whole dataset.
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

/// State of the check.
#[derive(Default)]
struct Check {
    rows: u64,
    labels: BTreeMap<String, u64>,
    /// Line and content kind of the first row.
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
                    "has `{}`, but line {first} has `{}`; a dataset contains either texts or pictures",
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
                format!("exceeds the limit of {MAX_LABELS} labels"),
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

/// Checks the dataset as a whole: it needs several rows and at least two labels.
fn of_labels(labels: &BTreeMap<String, u64>, rows: u64) -> Option<Fault> {
    match (rows, labels.len()) {
        (0, _) => Some(Fault::of_all(
            "the dataset is empty: expected JSON lines such as {\"text\": \"…\", \"label\": \"…\"}, or \
             CSV with the columns `text` and `label`",
        )),
        (1, _) => Some(Fault::of_all(
            "the dataset has only one row; a classifier needs rows with at least two labels",
        )),
        (rows, 1) => {
            let label = labels.keys().next().map_or("", String::as_str);
            Some(Fault::of_all(format!(
                "all {rows} rows have the label `{label}`; a classifier needs rows with at least \
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
