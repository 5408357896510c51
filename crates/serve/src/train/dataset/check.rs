//! Checks that a dataset is suitable for training and summarizes it.
//!
//! Invariant: every reported fault of a row has its line number, and the number of reported faults
//! is bounded.

use std::collections::BTreeMap;
use std::io::Read;

use super::rows::{DatasetFault, RowError, Rows};
use super::{ContentKind, DatasetLimits, DatasetSummary, MAX_LABELS};

/// Maximum number of reported faults.
const MAX_FAULTS: usize = 10;

/// Reasons to reject a dataset.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The dataset has faults: at least one, in the order of lines.
    #[error("{}", format_faults(.faults, *.more))]
    Wrong {
        /// The first faults.
        faults: Vec<DatasetFault>,
        /// Number of further faults.
        more: u64,
    },
    /// The bytes could not be read.
    #[error("cannot read the dataset: {0}")]
    Read(std::io::Error),
}

/// Reads and checks a whole dataset.
pub fn check(reader: impl Read, bounds: DatasetLimits) -> Result<DatasetSummary, DatasetError> {
    let mut check = Check::default();
    let rows = match Rows::new(reader, bounds) {
        Ok(rows) => rows,
        Err(error) => {
            check.add_error(error)?;
            return Err(check.rejected());
        }
    };
    let format = rows.format();
    for row in rows {
        match row {
            Ok(row) => check.add_row(row.line, row.holds, row.label),
            Err(error) => check.add_error(error)?,
        }
    }
    if check.faults.is_empty() {
        check.faults.extend(label_fault(&check.labels, check.rows));
    }
    match check.holds {
        Some((_, holds)) if check.faults.is_empty() => Ok(DatasetSummary {
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
    holds: Option<(u64, ContentKind)>,
    faults: Vec<DatasetFault>,
    more: u64,
}

impl Check {
    fn add_row(&mut self, line: u64, holds: ContentKind, label: String) {
        let (first, known) = *self.holds.get_or_insert((line, holds));
        if known != holds {
            self.add(DatasetFault::at(
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
            self.add(DatasetFault::at(
                line,
                format!("exceeds the limit of {MAX_LABELS} labels"),
            ));
        }
    }

    fn add_error(&mut self, error: RowError) -> Result<(), DatasetError> {
        match error {
            RowError::Row(fault) | RowError::End(fault) => self.add(fault),
            RowError::Read(error) => return Err(DatasetError::Read(error)),
        }
        Ok(())
    }

    fn add(&mut self, fault: DatasetFault) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
        } else {
            self.more += 1;
        }
    }

    fn rejected(self) -> DatasetError {
        DatasetError::Wrong {
            faults: self.faults,
            more: self.more,
        }
    }
}

/// Checks the dataset as a whole: it needs several rows and at least two labels.
fn label_fault(labels: &BTreeMap<String, u64>, rows: u64) -> Option<DatasetFault> {
    match (rows, labels.len()) {
        (0, _) => Some(DatasetFault::of_dataset(
            "the dataset is empty: expected JSON lines such as {\"text\": \"…\", \"label\": \"…\"}, or \
             CSV with the columns `text` and `label`",
        )),
        (1, _) => Some(DatasetFault::of_dataset(
            "the dataset has only one row; a classifier needs rows with at least two labels",
        )),
        (rows, 1) => {
            let label = labels.keys().next().map_or("", String::as_str);
            Some(DatasetFault::of_dataset(format!(
                "all {rows} rows have the label `{label}`; a classifier needs rows with at least \
                 two labels"
            )))
        }
        _ => None,
    }
}

fn format_faults(faults: &[DatasetFault], more: u64) -> String {
    let mut lines: Vec<String> = faults.iter().map(DatasetFault::to_string).collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("; ")
}
