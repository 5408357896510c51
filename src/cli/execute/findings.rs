//! Findings about variants and model files, for the report formats of CI systems.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::exit::Failure;
use super::super::report::{self as reports, CommandReport};
use super::super::{output, report_args};
use super::sides::ExecutionSide;
use pkgtool_base::diagnostic::render::{ReportFormat, ReportStyle};
use pkgtool_base::diagnostic::{Anchor, Report, RuleMeta, SourceText};
use pkgtool_base::package::LoadedFile;
use pkgtool_base::source::JsonPath;

/// Options for reports of findings.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct FindingArgs {
    /// Also write the findings to a file; may be given several times
    #[arg(long = "report", value_name = "FORMAT=FILE", value_parser = report_args::parse)]
    reports: Vec<(ReportFormat, PathBuf)>,

    /// Directory that paths in SARIF, GitHub and JUnit reports are relative to [default: the root
    /// of the checkout that contains the file]
    #[arg(long, value_name = "DIR", requires = "reports")]
    root: Option<PathBuf>,
}

impl FindingArgs {
    /// Writes the reports, and prints the result unless a report goes to standard output.
    pub(super) fn write(
        &self,
        found: &Report,
        rules: &[&'static RuleMeta],
        answer: &impl CommandReport,
        as_json: bool,
    ) -> Result<(), Failure> {
        let paths = report_args::machine_paths(found, self.root.as_deref());
        let style = style(output::width(), rules, &paths);
        report_args::write(&self.reports, found, &style)?;
        // A report on standard output must be the only output there.
        if !report_args::take_stdout(&self.reports)? {
            reports::print(answer, as_json)?;
        }
        Ok(())
    }
}

/// Returns the style of report files.
fn style<'a>(
    width: usize,
    rules: &'a [&'static RuleMeta],
    paths: &'a BTreeMap<String, String>,
) -> ReportStyle<'a> {
    ReportStyle {
        width,
        grouped: false,
        rules,
        paths,
        ..ReportStyle::default()
    }
}

/// The location of findings: a variant in its config, or a model file.
#[derive(Debug, Clone)]
pub(super) struct FindingLocation {
    path: PathBuf,
    variant: Option<JsonPath>,
}

impl FindingLocation {
    /// Returns the location of a side.
    pub(super) fn of(side: &ExecutionSide) -> Self {
        match &side.selection.variant {
            Some(variant) => Self::in_config(&variant.config, &variant.path),
            None => Self {
                path: side.selection.model.clone(),
                variant: None,
            },
        }
    }

    /// Returns the location of a variant in a config.
    pub(super) fn in_config(config: &Path, variant: &JsonPath) -> Self {
        Self {
            path: config.to_owned(),
            variant: Some(variant.clone()),
        }
    }

    /// Creates a report of findings at this location, each a rule and a message.
    pub(super) fn report(
        &self,
        found: impl Iterator<Item = (&'static RuleMeta, String)>,
    ) -> Report {
        let shown = self.path.to_string_lossy().replace('\\', "/");
        let loaded = self.variant.as_ref().map(|_| LoadedFile::read(&self.path));
        let text = loaded.as_ref().map(|loaded| loaded.text.clone());
        let document = loaded
            .as_ref()
            .and_then(|loaded| loaded.document.as_ref().ok());
        let source = Arc::new(SourceText::new(shown, text.unwrap_or_default()));
        let anchor = self.variant.clone().map_or(Anchor::File, Anchor::Value);
        let found = found.map(|(rule, message)| {
            let finding = rule.finding(anchor.clone(), message);
            finding.locate(&source, document)
        });
        let mut report = Report {
            files: vec![source.path.clone()],
            packages: usize::from(self.variant.is_some()),
            diagnostics: found.collect(),
            ..Report::default()
        };
        report.sort();
        report
    }
}

/// Merges several reports into one.
pub(super) fn merge_reports(reports: Vec<Report>) -> Report {
    let mut all = Report::default();
    for report in reports {
        for file in report.files {
            if !all.files.contains(&file) {
                all.files.push(file);
            }
        }
        all.diagnostics.extend(report.diagnostics);
    }
    all.packages = all.files.len();
    all.sort();
    all
}
