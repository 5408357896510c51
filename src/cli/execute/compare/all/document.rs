//! The result of `pkgtool compare --all` as a JSON document.

use std::path::PathBuf;

use serde::Serialize;

use super::super::report::ComparisonReport;
use pkgtool_base::source::json::JsonPath;
use pkgtool_engine::runtime::every::PackageVariant;
use pkgtool_engine::tensor::agreement::Agreement;

/// The comparison of all variants of a package with one of them. Version 1 of the document; later
/// versions only add fields.
#[derive(Debug, Serialize)]
pub(super) struct ComparisonDocument {
    version: u32,
    /// Set if all comparisons agree and none failed.
    pub(super) agrees: bool,
    /// Label of the reference variant.
    pub(super) reference: String,
    /// One row per variant and part.
    pub(super) rows: Vec<ComparisonRow>,
}

/// One part of a variant on one engine.
#[derive(Debug, Serialize)]
pub(super) struct ComparisonRow {
    /// Label of the variant, such as `fp16 for coreml`.
    pub(super) label: String,
    /// Path of the config.
    pub(super) config: PathBuf,
    #[serde(skip)]
    pub(super) path: JsonPath,
    backend: Option<&'static str>,
    precision: Option<String>,
    engine: Option<String>,
    /// Name of the component or method.
    pub(super) part: String,
    /// Worst figures of all outputs.
    pub(super) worst: Option<Agreement>,
    #[serde(flatten)]
    pub(super) outcome: RowOutcome,
}

/// The outcome of a row.
#[derive(Debug, Serialize)]
#[serde(tag = "status", content = "result", rename_all = "lowercase")]
pub(super) enum RowOutcome {
    /// Both sides ran and were compared.
    Compared(Box<ComparisonReport>),
    /// The part failed to run.
    Failed(String),
    /// No engine here runs the part, or the part is missing.
    Skipped(String),
}

impl ComparisonRow {
    /// Creates the row of a part on the named engine.
    pub(super) fn new(
        variant: &PackageVariant,
        engine: Option<&str>,
        part: String,
        outcome: RowOutcome,
    ) -> Self {
        Self {
            label: variant.label(),
            config: variant.config.clone(),
            path: variant.path.clone(),
            backend: variant.backend.map(pkgtool_base::package::Backend::name),
            precision: variant.precision.clone(),
            engine: engine.map(str::to_owned),
            part,
            worst: match &outcome {
                RowOutcome::Compared(report) => report.worst(),
                _ => None,
            },
            outcome,
        }
    }

    /// Returns the engine that the user named.
    pub(super) fn engine(&self) -> Option<&str> {
        self.engine.as_deref()
    }

    /// Returns the comparison, if there is one.
    pub(super) fn report(&self) -> Option<&ComparisonReport> {
        match &self.outcome {
            RowOutcome::Compared(report) => Some(report),
            _ => None,
        }
    }
}

impl ComparisonDocument {
    /// Creates the document. With `require_all`, skipped rows count as failures.
    pub(super) fn new(reference: String, rows: Vec<ComparisonRow>, require_all: bool) -> Self {
        let keeps = |row: &ComparisonRow| match &row.outcome {
            RowOutcome::Compared(report) => report.agrees,
            RowOutcome::Failed(_) => false,
            RowOutcome::Skipped(_) => !require_all,
        };
        Self {
            version: 1,
            agrees: rows.iter().all(keeps),
            reference,
            rows,
        }
    }

    /// Returns whether anything was compared or failed.
    pub(super) fn has_compared(&self) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|row| !matches!(row.outcome, RowOutcome::Skipped(_))) || !self.agrees
    }
}
