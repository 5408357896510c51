//! What the comparison of all variants found, as a document.

use std::path::PathBuf;

use serde::Serialize;

use super::super::report::ComparisonReport;
use crate::runtime::every::PackageVariant;
use crate::source::json::JsonPath;
use crate::tensor::agreement::Agreement;

/// All variants of a package against one of them. Version 1 of a contract that only grows.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    version: u32,
    /// Whether everything that was compared agrees, and nothing failed.
    pub(super) agrees: bool,
    /// What all were compared with.
    pub(super) reference: String,
    /// Each variant, each part of it.
    pub(super) rows: Vec<Row>,
}

/// A part of a variant on an engine.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// `fp16 for coreml`.
    pub(super) label: String,
    /// The config.
    pub(super) config: PathBuf,
    #[serde(skip)]
    pub(super) path: JsonPath,
    backend: Option<&'static str>,
    precision: Option<String>,
    engine: Option<String>,
    /// The component or the method.
    pub(super) part: String,
    /// The worst figures of all its outputs.
    pub(super) worst: Option<Agreement>,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

/// What became of a row.
#[derive(Debug, Serialize)]
#[serde(tag = "status", content = "result", rename_all = "lowercase")]
pub(super) enum Outcome {
    /// Both ran.
    Compared(Box<ComparisonReport>),
    /// It did not run, though it should.
    Failed(String),
    /// Nothing here runs it, or it is not there.
    Skipped(String),
}

impl Row {
    /// Of a part of a variant on the engine that was named.
    pub(super) fn new(
        variant: &PackageVariant,
        engine: Option<&str>,
        part: String,
        outcome: Outcome,
    ) -> Self {
        Self {
            label: variant.label(),
            config: variant.config.clone(),
            path: variant.path.clone(),
            backend: variant.backend.map(crate::package::Backend::name),
            precision: variant.precision.clone(),
            engine: engine.map(str::to_owned),
            part,
            worst: match &outcome {
                Outcome::Compared(report) => report.worst(),
                _ => None,
            },
            outcome,
        }
    }

    /// The engine that was named.
    pub(super) fn engine(&self) -> Option<&str> {
        self.engine.as_deref()
    }

    /// The comparison, if there was one.
    pub(super) fn report(&self) -> Option<&ComparisonReport> {
        match &self.outcome {
            Outcome::Compared(report) => Some(report),
            _ => None,
        }
    }
}

impl Document {
    /// Of these rows; with `require_all` what was skipped counts as a failure.
    pub(super) fn new(reference: String, rows: Vec<Row>, require_all: bool) -> Self {
        let keeps = |row: &Row| match &row.outcome {
            Outcome::Compared(report) => report.agrees,
            Outcome::Failed(_) => false,
            Outcome::Skipped(_) => !require_all,
        };
        Self {
            version: 1,
            agrees: rows.iter().all(keeps),
            reference,
            rows,
        }
    }

    /// Whether anything was compared, or should have been.
    pub(super) fn has_compared(&self) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|row| !matches!(row.outcome, Outcome::Skipped(_))) || !self.agrees
    }

    /// The document, with a line end.
    pub(super) fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("strings, numbers and lists can be written") + "\n"
    }
}
