//! Datasets: texts or pictures, each with its label, as JSON lines or CSV.
//!
//! A row of JSON lines is `{"text": "…", "label": "…"}` or `{"image_base64": "…", "label": "…"}`, of CSV a
//! record under a header with these names. Other keys and columns are passed over. Invariant: whatever the
//! bytes are, reading them takes no more memory than [`Bounds`] say, and what is wrong is told with its line.

mod check;
mod pieces;
mod rows;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::service::Holds;

pub use check::{Rejected, check};
pub use pieces::{Pieces, Verified, pieces};
pub use rows::{Fault, Row, RowError, Rows};

/// How a dataset is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A JSON object a line.
    Jsonl,
    /// Comma-separated values (RFC 4180) with a header.
    Csv,
}

/// What a dataset may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of all of it.
    pub bytes: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes of a row.
    pub row_bytes: usize,
}

/// What is in a dataset that can be trained on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// How it is written.
    pub format: Format,
    /// What its rows hold.
    pub holds: Holds,
    /// How many there are.
    pub rows: u64,
    /// How many there are of each label.
    pub labels: BTreeMap<String, u64>,
}

/// Most labels: each is a row of the classifier's weights.
pub const MAX_LABELS: usize = 1000;

/// Longest label, in bytes.
pub const MAX_LABEL: usize = 256;

impl Format {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
        }
    }

    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Jsonl, Self::Csv]
            .into_iter()
            .find(|format| format.name() == name)
    }

    /// The media type of such a file.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Jsonl => "application/jsonl",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            rows: 100_000,
            row_bytes: 8 << 20,
        }
    }
}

impl Summary {
    /// As JSON text.
    #[expect(
        clippy::missing_panics_doc,
        reason = "numbers, texts and a map of them are always JSON"
    )]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts are JSON")
    }

    /// What [`Self::to_json`] wrote.
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
