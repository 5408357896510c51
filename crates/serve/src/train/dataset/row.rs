//! A row of a dataset: its content and its labels.
//!
//! Invariant: a row has content, and its labels are different, not empty and short.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::value::RawValue;

use super::{ContentKind, MAX_LABEL_BYTES, MAX_LABELS};
use crate::service::json;
use pkgtool_text::embedding::MAX_TEXT_BYTES;

/// Key of a row's only label.
pub(super) const LABEL_KEY: &str = "label";

/// Key of a row's labels.
pub(super) const LABELS_KEY: &str = "labels";

/// Separates labels in a CSV field.
const LABEL_SEPARATOR: char = '|';

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetRow {
    /// The line where it begins, starting at 1.
    pub line: u64,
    /// The kind of its content.
    pub holds: ContentKind,
    /// The text, or the picture as base64.
    pub content: String,
    /// Its label or labels.
    pub labels: RowLabels,
}

/// The labels of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowLabels {
    /// Exactly one (`label`).
    One(String),
    /// Any number of different ones (`labels`).
    Several(Vec<String>),
}

impl RowLabels {
    /// Returns the key of the labels.
    pub(super) fn key(&self) -> &'static str {
        if self.is_several() {
            LABELS_KEY
        } else {
            LABEL_KEY
        }
    }

    /// Returns whether the row may have several labels.
    pub fn is_several(&self) -> bool {
        matches!(self, Self::Several(_))
    }

    /// Returns the labels.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(label) => std::slice::from_ref(label),
            Self::Several(labels) => labels,
        }
    }
}

/// A fault in a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetFault {
    /// The line, starting at 1; `None` if the fault concerns the whole dataset.
    pub line: Option<u64>,
    /// The message: expected, found and remedy.
    pub reason: String,
}

/// Indices of the columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    pub(super) holds: ContentKind,
    pub(super) content: usize,
    pub(super) labels: usize,
    /// Whether the column of labels has several.
    pub(super) is_several: bool,
    pub(super) count: usize,
}

impl fmt::Display for DatasetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl DatasetFault {
    /// Creates a fault of a line.
    pub(super) fn at(line: u64, reason: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            reason: reason.into(),
        }
    }

    /// Creates a fault of the whole dataset.
    pub(super) fn of_dataset(reason: impl Into<String>) -> Self {
        Self {
            line: None,
            reason: reason.into(),
        }
    }
}

/// Parses a row of JSON lines. All labels have the same JSON type, `labels`, which the first one sets.
pub(super) fn parse_line(
    bytes: &[u8],
    line: u64,
    labels: &mut Option<&'static str>,
) -> Result<DatasetRow, DatasetFault> {
    let text = utf8(bytes, line)?;
    if text.trim_start().starts_with('[') {
        let reason = "unexpected array: expected one JSON object per line, without brackets \
                      and commas around them";
        return Err(DatasetFault::at(line, reason));
    }
    let members = json::members(text.trim(), "$");
    let members = members.map_err(|refusal| DatasetFault::at(line, refusal.message))?;
    let member = |key: &str| members.iter().find(|(known, _)| known == key);
    let content = match (member("text"), member("image_base64")) {
        (Some((_, text)), None) => (ContentKind::Text, text),
        (None, Some((_, image))) => (ContentKind::Image, image),
        (Some(_), Some(_)) => {
            return Err(DatasetFault::at(
                line,
                "has both `text` and `image_base64`; expected one of them",
            ));
        }
        (None, None) => {
            return Err(DatasetFault::at(
                line,
                "has neither `text` nor `image_base64`",
            ));
        }
    };
    let (holds, content) = content;
    let content = string(content, holds.key(), line)?;
    let labels = match (member(LABEL_KEY), member(LABELS_KEY)) {
        (Some((_, label)), None) => RowLabels::One(parse_label((LABEL_KEY, label), line, labels)?),
        (None, Some((_, list))) => RowLabels::Several(parse_labels(list, line, labels)?),
        (Some(_), Some(_)) => {
            let reason = "has both `label` and `labels`; expected one of them";
            return Err(DatasetFault::at(line, reason));
        }
        (None, None) => {
            let reason = "has no `label`, and no `labels` for several";
            return Err(DatasetFault::at(line, reason));
        }
    };
    validated(DatasetRow {
        line,
        holds,
        content,
        labels,
    })
}

/// Parses a list of labels.
fn parse_labels(
    value: &RawValue,
    line: u64,
    known: &mut Option<&'static str>,
) -> Result<Vec<String>, DatasetFault> {
    let kind = json::kind(value.get());
    let items: Vec<&RawValue> = match kind {
        "an array" => serde_json::from_str(value.get()).ok(),
        _ => None,
    }
    .ok_or_else(|| {
        let reason = format!("`{LABELS_KEY}` is {kind}; expected an array of labels");
        DatasetFault::at(line, reason)
    })?;
    let items = items.into_iter();
    items
        .map(|label| parse_label((LABELS_KEY, label), line, known))
        .collect()
}

fn string(value: &RawValue, key: &str, line: u64) -> Result<String, DatasetFault> {
    let text = json::string(value, key);
    let text =
        text.map_err(|refusal| DatasetFault::at(line, format!("`{key}`: {}", refusal.message)))?;
    Ok(text.into_owned())
}

/// Returns the text of a label. All labels of a dataset have the same type, which is `known` after the first one.
fn parse_label(
    (key, value): (&str, &RawValue),
    line: u64,
    known: &mut Option<&'static str>,
) -> Result<String, DatasetFault> {
    let written = value.get();
    let fault = |reason: String| Err(DatasetFault::at(line, reason));
    let subject = if key == LABEL_KEY {
        format!("`{key}` is")
    } else {
        format!("`{key}` has")
    };
    let (kind, label) = match json::kind(written) {
        kind @ "a number" if written.parse::<i64>().is_ok() => (kind, written.to_owned()),
        kind @ "a boolean" => (kind, written.to_owned()),
        kind @ "a string" => (kind, string(value, key, line)?),
        kind => {
            return fault(format!(
                "{subject} {kind}; expected a string, a whole number or a boolean"
            ));
        }
    };
    match *known {
        Some(known) if known != kind => fault(format!(
            "{subject} {kind}, but {known} in the rows before; use the same type for all labels"
        )),
        _ => {
            *known = Some(kind);
            Ok(label)
        }
    }
}

/// Checks that apply to rows of both formats.
fn validated(row: DatasetRow) -> Result<DatasetRow, DatasetFault> {
    let fault = |reason: String| Err(DatasetFault::at(row.line, reason));
    let key = row.holds.key();
    if row.content.trim().is_empty() {
        return fault(format!("`{key}` is empty"));
    }
    if row.holds == ContentKind::Text && row.content.len() > MAX_TEXT_BYTES {
        let bytes = row.content.len();
        return fault(format!(
            "`text` has {bytes} bytes, more than the limit of {MAX_TEXT_BYTES}"
        ));
    }
    let key = row.labels.key();
    let labels = row.labels.all();
    if labels.len() > MAX_LABELS {
        return fault(format!("`{key}` exceeds the limit of {MAX_LABELS} labels"));
    }
    let mut known = BTreeSet::new();
    for label in labels {
        if label.trim().is_empty() {
            return fault(match row.labels {
                RowLabels::One(_) => format!("`{key}` is empty"),
                RowLabels::Several(_) => format!("`{key}` has an empty label"),
            });
        }
        if label.len() > MAX_LABEL_BYTES || label.chars().any(char::is_control) {
            let shown = json::shown(label);
            return fault(format!(
                "`{key}` is {shown}; expected at most {MAX_LABEL_BYTES} bytes without control characters"
            ));
        }
        if !known.insert(label) {
            let shown = json::shown(label);
            return fault(format!("`{key}` has {shown} twice"));
        }
    }
    Ok(row)
}

fn utf8(bytes: &[u8], line: u64) -> Result<&str, DatasetFault> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to() + 1;
        let reason = format!("byte {at} of the row is invalid UTF-8; save the file as UTF-8");
        DatasetFault::at(line, reason)
    })
}

/// Parses a row of CSV.
pub(super) fn parse_record(
    record: &csv::ByteRecord,
    line: u64,
    columns: Columns,
) -> Result<DatasetRow, DatasetFault> {
    if record.len() != columns.count {
        let (found, expected) = (record.len(), columns.count);
        let reason = format!(
            "has {found} fields, but the header has {expected}; put texts with commas, quotes or line breaks \
             in double quotes"
        );
        return Err(DatasetFault::at(line, reason));
    }
    let field = |place: usize| utf8(record.get(place).unwrap_or_default(), line);
    let labels = field(columns.labels)?;
    let is_blank = labels.trim().is_empty();
    validated(DatasetRow {
        line,
        holds: columns.holds,
        content: field(columns.content)?.to_owned(),
        labels: if columns.is_several {
            let labels = labels.split(LABEL_SEPARATOR).map(str::trim);
            // An empty field has no labels.
            let labels = labels.filter(|label| !(label.is_empty() && is_blank));
            RowLabels::Several(labels.map(str::to_owned).collect())
        } else {
            RowLabels::One(labels.to_owned())
        },
    })
}
