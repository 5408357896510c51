//! Checks that a dataset is suitable for training and summarizes it.
//!
//! Invariant: every reported fault of a row has its line number, and the number of reported faults
//! is bounded.

use std::collections::BTreeMap;
use std::io::Read;

use super::row::{DatasetFault, DatasetRow};
use super::rows::{RowError, Rows};
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
            Ok(row) => check.add_row(row),
            Err(error) => check.add_error(error)?,
        }
    }
    if check.faults.is_empty() {
        check.faults.extend(check.label_fault());
    }
    match check.first {
        Some(first) if check.faults.is_empty() => Ok(DatasetSummary {
            format,
            holds: first.holds,
            rows: check.rows,
            labels: check.labels,
            multi_label: first.is_several,
        }),
        _ => Err(check.rejected()),
    }
}

/// State of the check.
#[derive(Default)]
struct Check {
    rows: u64,
    labels: BTreeMap<String, u64>,
    first: Option<FirstRow>,
    faults: Vec<DatasetFault>,
    more: u64,
}

/// The kind of the first row, which all rows have.
#[derive(Clone, Copy)]
struct FirstRow {
    line: u64,
    holds: ContentKind,
    is_several: bool,
    labels_key: &'static str,
}

impl Check {
    fn add_row(&mut self, row: DatasetRow) {
        let DatasetRow {
            line,
            holds,
            labels,
            ..
        } = row;
        let first = *self.first.get_or_insert(FirstRow {
            line,
            holds,
            is_several: labels.is_several(),
            labels_key: labels.key(),
        });
        let start = first.line;
        if first.holds != holds {
            self.add(DatasetFault::at(
                line,
                format!(
                    "has `{}`, but line {start} has `{}`; a dataset contains either texts or pictures",
                    holds.key(),
                    first.holds.key()
                ),
            ));
            return;
        }
        if first.is_several != labels.is_several() {
            self.add(DatasetFault::at(
                line,
                format!(
                    "has `{}`, but line {start} has `{}`; use the same key in all rows",
                    labels.key(),
                    first.labels_key
                ),
            ));
            return;
        }
        self.rows += 1;
        for label in labels.all() {
            if let Some(count) = self.labels.get_mut(label) {
                *count += 1;
            } else if self.labels.len() < MAX_LABELS {
                self.labels.insert(label.clone(), 1);
            } else {
                self.add(DatasetFault::at(
                    line,
                    format!("exceeds the limit of {MAX_LABELS} labels"),
                ));
                return;
            }
        }
    }

    fn add_error(&mut self, error: RowError) -> Result<(), DatasetError> {
        match error {
            RowError::Row(fault) | RowError::End(fault) => self.add(fault),
            RowError::Read(error) => return Err(DatasetError::Read(error)),
        }
        Ok(())
    }

    /// Checks the dataset as a whole: a classifier needs several rows and at least two labels. With several labels per
    /// row, it needs one that some rows have and others lack.
    fn label_fault(&self) -> Option<DatasetFault> {
        let rows = self.rows;
        let is_several = self.first.is_some_and(|first| first.is_several);
        let reason = match rows {
            0 => {
                "the dataset is empty: expected JSON lines such as {\"text\": \"…\", \"label\": \"…\"}, or \
                 CSV with the columns `text` and `label`"
                    .to_owned()
            }
            1 => "the dataset has only one row; a classifier needs rows with at least two labels"
                .to_owned(),
            _ if is_several && self.labels.is_empty() => {
                "all `labels` are empty; a classifier needs at least one label".to_owned()
            }
            _ if is_several => {
                let mut labels = self.labels.iter();
                let (label, _) = labels.find(|(_, count)| **count == rows)?;
                format!(
                    "all {rows} rows have the label `{label}`; a classifier needs rows without it, or remove the label"
                )
            }
            _ if self.labels.len() == 1 => {
                let label = self.labels.keys().next().map_or("", String::as_str);
                format!(
                    "all {rows} rows have the label `{label}`; a classifier needs rows with at least \
                     two labels"
                )
            }
            _ => return None,
        };
        Some(DatasetFault::of_dataset(reason))
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

fn format_faults(faults: &[DatasetFault], more: u64) -> String {
    let mut lines: Vec<String> = faults.iter().map(DatasetFault::to_string).collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("; ")
}
