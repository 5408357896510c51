//! Datasets: texts or pictures with labels, as JSON lines or CSV.
//!
//! A row of JSON lines is `{"text": "…", "label": "…"}` or `{"image_base64": "…", "label": "…"}`. A
//! row of CSV is a record below a header with these names. `labels` in place of `label` is a list, in CSV separated
//! by `|`. Other keys and columns are ignored.
//! Invariant: for any input, reading takes no more memory than [`DatasetLimits`] allow, and faults are
//! reported with their line.

mod check;
mod pieces;
mod row;
mod rows;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::service::ContentKind;

pub use check::{DatasetError, check};
pub use pieces::{ChecksumReader, PieceReader, pieces};
pub use row::{DatasetFault, DatasetRow, RowLabels};
pub use rows::{RowError, Rows};

/// File format of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatasetFormat {
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated values (RFC 4180) with a header.
    Csv,
}

/// Limits on a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetLimits {
    /// Maximum total size, in bytes.
    pub bytes: u64,
    /// Maximum number of rows.
    pub rows: u64,
    /// Maximum size of a row, in bytes.
    pub row_bytes: usize,
}

/// Summary of a valid dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetSummary {
    /// Its file format.
    pub format: DatasetFormat,
    /// The kind of content of its rows.
    pub holds: ContentKind,
    /// Number of rows.
    pub rows: u64,
    /// Number of rows per label.
    pub labels: BTreeMap<String, u64>,
    /// True if a row may have several labels.
    #[serde(default)]
    pub multi_label: bool,
}

/// Maximum number of labels. Each label is a row of the classifier's weights.
pub const MAX_LABELS: usize = 1000;

/// Maximum length of a label, in bytes.
pub const MAX_LABEL_BYTES: usize = 256;

impl DatasetFormat {
    /// Returns the name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
        }
    }

    /// Parses the name of a format.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Jsonl, Self::Csv]
            .into_iter()
            .find(|format| format.name() == name)
    }

    /// Returns the media type of the format.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Jsonl => "application/jsonl",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }
}

impl Default for DatasetLimits {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            rows: 100_000,
            row_bytes: 8 << 20,
        }
    }
}

impl DatasetSummary {
    /// Returns the summary as JSON text.
    #[expect(
        clippy::missing_panics_doc,
        reason = "numbers, strings and maps of them always serialize"
    )]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings serialize")
    }

    /// Parses the output of [`Self::to_json`].
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
