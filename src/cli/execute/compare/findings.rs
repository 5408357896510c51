//! What a comparison found, as findings on the config's line, for CI's report formats.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::sides::Side;
use super::report::ComparisonReport;
use crate::diagnostic::render::Style;
use crate::diagnostic::{Anchor, Report, RuleMeta, Severity, SourceText};
use crate::package::Loaded;
use crate::source::JsonPath;

/// Outputs that do not keep the tolerances.
static OUTPUTS_DIFFER: RuleMeta = RuleMeta {
    code: "CMP001",
    name: "outputs-differ",
    severity: Severity::Error,
    summary: "Two variants or engines give outputs that differ by more than the tolerances.",
    fix: None,
    explanation: "\
# What it checks
The outputs of B are held against those of A on the same inputs.

# Why
A quantized or re-exported variant should still compute the same thing.

# Example
An int8 variant whose cosine similarity to fp32 is 0.8.

# Fix
Look at the output that is named: calibrate again, keep sensitive layers in higher precision, or set \
tolerances that suit the precision.",
};

/// Inputs that only one of the two can run.
static RUNS_ON_ONE_SIDE: RuleMeta = RuleMeta {
    code: "CMP002",
    name: "runs-on-one-side",
    severity: Severity::Error,
    summary: "One of two variants or engines cannot run inputs that the other runs.",
    fix: None,
    explanation: "\
# What it checks
Dynamic dimensions are run at their bound and below it, on both sides.

# Why
A model exported with a wrong dynamic dimension runs at the size of its example only.

# Example
A variant whose batch was fixed at export while its file says that it is dynamic.

# Fix
Export the dimension as dynamic, or declare it with its size.",
};

/// The rules of comparisons.
pub(super) fn rules() -> Vec<&'static RuleMeta> {
    vec![&OUTPUTS_DIFFER, &RUNS_ON_ONE_SIDE]
}

/// How report files look.
pub(super) fn style<'a>(
    width: usize,
    rules: &'a [&'static RuleMeta],
    paths: &'a BTreeMap<String, String>,
) -> Style<'a> {
    Style {
        color: false,
        width,
        summary: true,
        deny_warnings: false,
        grouped: false,
        rules,
        rules_page: None,
        paths,
    }
}

/// Where findings stand: on a variant in its config, or on a model file.
#[derive(Debug, Clone)]
pub(super) struct Place {
    path: PathBuf,
    variant: Option<JsonPath>,
}

impl Place {
    /// That of a side.
    pub(super) fn of(side: &Side) -> Self {
        match &side.selection.variant {
            Some(variant) => Self::in_config(&variant.config, &variant.path),
            None => Self {
                path: side.selection.model.clone(),
                variant: None,
            },
        }
    }

    /// That of a variant in a config.
    pub(super) fn in_config(config: &Path, variant: &JsonPath) -> Self {
        Self {
            path: config.to_owned(),
            variant: Some(variant.clone()),
        }
    }

    /// A report of findings that stand here, each a rule and what it says.
    fn report(&self, found: impl Iterator<Item = (&'static RuleMeta, String)>) -> Report {
        let shown = self.path.to_string_lossy().replace('\\', "/");
        let loaded = self.variant.as_ref().map(|_| Loaded::read(&self.path));
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

/// What a comparison found of B, which stands at `place`.
pub(super) fn of(report: &ComparisonReport, place: &Place) -> Report {
    let against = format!("{} against {}", report.b.label, report.a.label);
    let found = report.cases.iter().flat_map(|case| {
        let failures = case
            .failure
            .iter()
            .map(|text| (&RUNS_ON_ONE_SIDE, text.clone()));
        let complaints = case
            .outputs
            .iter()
            .flat_map(super::report::OutputResult::complaints);
        let complaints = complaints.map(|text| (&OUTPUTS_DIFFER, text));
        let found: Vec<(&RuleMeta, String)> = failures.chain(complaints).collect();
        let named = found.into_iter();
        named.map(|(rule, text)| (rule, format!("{against}, {}: {text}", case.label)))
    });
    place.report(found.collect::<Vec<_>>().into_iter())
}

/// That what stands at `place` does not run where the reference does.
pub(super) fn does_not_run(place: &Place, message: String) -> Report {
    place.report(std::iter::once((&RUNS_ON_ONE_SIDE, message)))
}

/// Several reports as one.
pub(super) fn merged(reports: Vec<Report>) -> Report {
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
